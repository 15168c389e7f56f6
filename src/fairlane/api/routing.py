"""Routing with access control: every route declares the access level it needs. A route without one
cannot be added."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote

from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Match, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from fairlane.api.auth.ownership import check_path
from fairlane.api.auth.roles import ALLOWED, OPEN, Access, permit
from fairlane.api.http.body_limits import CheckedRequest
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.schemas.serializers import (
    AttachmentResponse,
    StreamedResponse,
    TypedResponse,
)

PROBLEMS = {
    400: "The request cannot be read.",
    401: "The API key is missing or not valid.",
    402: "The balance is too low.",
    403: "This key may not do that.",
    404: "It does not exist, or another key or tenant owns it.",
    408: "The request took too long to arrive.",
    409: "The state of the job does not allow it, or a lease or key is in conflict.",
    410: "It existed, and its record was removed.",
    413: "The request is too large.",
    415: "The body is not JSON.",
    421: "The host name is not allowed.",
    422: "A value that cannot be accepted.",
    429: "A limit is reached; Retry-After says when to try again.",
    431: "The headers are too large.",
    502: "The job has failed.",
    503: "Overloaded or unavailable; Retry-After says when to try again.",
    504: "The job has not ended in time; it is kept.",
}
EVERYWHERE = (400, 401, 403, 408, 413, 415, 421, 422, 429, 431, 503)

JSON = "application/json"
TEXT = {"schema": {"type": "string"}}
Body = TypeVar("Body")
Endpoint = Callable[
    ...,
    Awaitable[TypedResponse[Body] | StreamingResponse | PlainTextResponse | AttachmentResponse],
]
"""An endpoint returns JSON. Some return text if the request asks for it, one returns files."""

Hot = Callable[[Scope, Receive], Awaitable[Response]]
HotEndpoint = Callable[[Scope, Receive], Awaitable[TypedResponse[Body] | StreamedResponse]]


@dataclass
class Declared:
    """A declared route. `made` caches the framework's route, which is slow to build and the same in
    every application."""

    method: str
    path: str
    access: Access
    endpoint: Callable[..., Any]
    options: dict[str, Any]
    examples: dict[str, Any]
    """Examples of the response, by media type."""
    hot: Hot | None = None
    made: GuardedRoute | None = None


class Routes:
    """A group of routes, declared beside the functions that serve them."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.declared: list[Declared] = []
        self.sockets: list[tuple[str, Access, Callable[[WebSocket], Awaitable[None]]]] = []

    def add(
        self,
        method: str,
        path: str,
        access: Access,
        *,
        example: Body,
        status: int = 200,
        texts: dict[str, str] | None = None,
        problems: tuple[int, ...] = (),
        takes: type[BaseModel] | None = None,
    ) -> Callable[[Endpoint[Body]], Endpoint[Body]]:
        """`example` is an example of the response; `texts` has one for each other media type.
        `takes` describes a body that the function reads by itself."""

        def declare(endpoint: Endpoint[Body]) -> Endpoint[Body]:
            content = dict.fromkeys(texts or {}, TEXT)
            options = self._options(endpoint, status, {status: {"content": content}}, problems)
            if takes is not None:
                options["openapi_extra"] = {"requestBody": _body(takes)}
            examples = {JSON: example, **(texts or {})}
            self.declared.append(Declared(method, path, access, endpoint, options, examples))
            return endpoint

        return declare

    def add_file(
        self,
        path: str,
        access: Access,
        *media_types: str,
        example: str = "",
        problems: tuple[int, ...] = (),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declares a GET route that returns a page or a file instead of JSON."""

        def declare(endpoint: Callable[..., Any]) -> Callable[..., Any]:
            content = {media_type: TEXT if example else {} for media_type in media_types}
            options = self._options(endpoint, 200, {200: {"content": content}}, problems)
            options["response_class"] = Response  # else the framework describes JSON
            examples = dict.fromkeys(media_types, example) if example else {}
            self.declared.append(Declared("GET", path, access, endpoint, options, examples))
            return endpoint

        return declare

    def hot(  # noqa: PLR0913 - each describes another part of the route
        self,
        method: str,
        path: str,
        access: Access,
        *,
        takes: type[BaseModel],
        example: Body,
        status: int,
        also: dict[int, str] | None = None,
        texts: dict[str, str] | None = None,
        problems: tuple[int, ...] = (),
    ) -> Callable[[HotEndpoint[Body]], HotEndpoint[Body]]:
        """Declares a hot route: the guard calls it directly, and the framework only describes it.
        `also` holds other statuses with the same body, and their meaning; `texts` has an example
        for each other media type."""

        def declare(handler: HotEndpoint[Body]) -> HotEndpoint[Body]:
            async def endpoint(request: Request) -> Response:
                return await handler(request.scope, request.receive)

            endpoint.__name__, endpoint.__doc__ = handler.__name__, handler.__doc__
            model = response_body(handler)
            responses: dict[int, Any] = {
                code: {"model": model, "description": meaning}
                for code, meaning in (also or {}).items()
            }
            if texts:
                responses[status] = {"content": dict.fromkeys(texts, TEXT)}
            options = self._options(handler, status, responses, problems)
            options["openapi_extra"] = {"requestBody": _body(takes)}
            examples = {JSON: example, **(texts or {})}
            self.declared.append(
                Declared(method, path, access, endpoint, options, examples, handler)
            )
            return handler

        return declare

    def socket(
        self, path: str, access: Access
    ) -> Callable[[Callable[[WebSocket], Awaitable[None]]], Callable[[WebSocket], Awaitable[None]]]:
        def declare(
            endpoint: Callable[[WebSocket], Awaitable[None]],
        ) -> Callable[[WebSocket], Awaitable[None]]:
            self.sockets.append((path, access, endpoint))
            return endpoint

        return declare

    def _options(
        self,
        endpoint: Callable[..., Any],
        status: int,
        responses: dict[int, Any],
        problems: tuple[int, ...],
    ) -> dict[str, Any]:
        for code in sorted({*EVERYWHERE, *problems}):
            responses[code] = {"description": PROBLEMS[code]}
        return {
            "response_model": response_body(endpoint),
            "status_code": status,
            "responses": responses,
            "tags": [self._tag],
            "operation_id": endpoint.__name__,
            "summary": endpoint.__name__.replace("_", " ").capitalize(),
        }


def response_body(endpoint: Callable[..., Any]) -> Any:
    """Returns the type of the JSON body from an endpoint's annotation; None if it has none."""
    returned = get_type_hints(endpoint).get("return")
    for each in (returned, *get_args(returned)):
        if get_origin(each) is TypedResponse:
            return get_args(each)[0]
    return None


def _body(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


SLASH = "\udc2f"
"""Represents a slash that was sent as `%2F`. Text that was sent contains no lone surrogate."""


def in_parts(scope: Scope) -> str:
    """Returns the path for route matching. An encoded slash (`%2F`) does not separate segments."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2" not in raw:
        return str(scope["path"])
    parts = re.split("%2f", raw.decode("latin-1"), flags=re.IGNORECASE)
    return SLASH.join(unquote(part) for part in parts)


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (each.alias for each in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_names(each)


SOCKET_QUERY = frozenset({"after", "ticket"})
NO_QUERY = frozenset[str]()


def check_names(scope: Scope, known: frozenset[str]) -> None:
    """Raises for an unknown query parameter, and for a path parameter with U+0000, which no store
    can hold."""
    for name, value in scope.get("path_params", {}).items():
        if "\0" in str(value):
            raise ProblemDetails(422, "invalid_input", f"{name}: text without U+0000 is needed")
    if not scope["query_string"]:
        return
    for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise _unknown(name, known)


def _unknown(name: str, known: frozenset[str]) -> ProblemDetails:
    close = difflib.get_close_matches(name, known, n=1)
    meant = f'did you mean "{close[0]}"? ' if close else ""
    names = f"known here: {', '.join(sorted(known))}" if known else "this route takes none"
    return ProblemDetails(
        422,
        "invalid_input",
        f'unknown query parameter "{name[:100]}"; {meant}{names}',
        more={"field": name[:100]},
    )


class GuardedRoute(APIRoute):
    """A route that checks the caller's role, and reads only bodies within the limits."""

    access: Access | None = None
    examples: Mapping[str, Any] = MappingProxyType({})

    @cached_property
    def query_names(self) -> frozenset[str]:
        """The names of the route's query parameters."""
        return frozenset(_query_names(self.dependant))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = in_parts(scope)
        if path == scope["path"]:  # the usual case, and every route is tried
            return super().matches(scope)
        match, found = super().matches({**scope, "path": path})
        values = found.get("path_params", {})
        for name, value in values.items():
            values[name] = value.replace(SLASH, "/")
        return match, found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            raise _method_not_allowed(scope)
        if self.access is not None:
            permit(scope, self.access)
        elif self.path not in OPEN:
            raise ProblemDetails(403, "forbidden", "this route has no declared access")
        check_names(scope, self.query_names)
        await check_path(scope)
        await super().handle(scope, receive, send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def checked(request: Request) -> Response:
            return await handler(CheckedRequest(request.scope, request.receive))

        return checked


class GuardedSocket(WebSocketRoute):
    access: Access | None = None

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.access is None:
            raise ProblemDetails(403, "forbidden", "this route has no declared access")
        permit(scope, self.access)
        check_names(scope, SOCKET_QUERY)
        await self.endpoint(WebSocket(scope, receive, send))  # without wrappers, to save memory


def _method_not_allowed(scope: Scope) -> ProblemDetails:
    """Returns a 405 that lists the methods of all routes with this path."""
    allowed: set[str] = set()
    path = in_parts(scope)
    for route in scope["app"].routes:
        if isinstance(route, GuardedRoute) and route.path_regex.match(path):
            allowed |= route.methods or set()
    return ProblemDetails(
        405,
        "method_not_allowed",
        f"possible here: {', '.join(sorted(allowed))}",
        headers={"Allow": ", ".join(sorted(allowed))},
    )


def install(app: FastAPI, groups: list[Routes]) -> dict[tuple[str, str], Declared]:
    """Adds all routes to the application. Returns the hot routes by method and path."""
    app.router.route_class = GuardedRoute
    hot = {}
    for declared in (each for group in groups for each in group.declared):
        if declared.access not in ALLOWED:
            raise ValueError(f"{declared.path}: who may use it?")
        declared.made = declared.made or _make(app, declared)
        app.router.routes.append(declared.made)
        if declared.hot is not None:
            hot[declared.method, declared.path] = declared
    for path, access, endpoint in (each for group in groups for each in group.sockets):
        socket = GuardedSocket(path, endpoint)
        socket.access = access
        app.router.routes.append(socket)
    return hot


def _make(app: FastAPI, declared: Declared) -> GuardedRoute:
    extra = {**declared.options.pop("openapi_extra", {}), "x-access": declared.access}
    app.router.add_api_route(
        declared.path,
        declared.endpoint,
        methods=[declared.method],
        openapi_extra=extra,
        **declared.options,
    )
    route = app.router.routes.pop()
    assert isinstance(route, GuardedRoute)  # noqa: S101 - the class set above
    route.access, route.examples = declared.access, declared.examples
    return route


def unguarded(app: FastAPI) -> list[str]:
    """Returns the paths of routes without a declared access level."""
    return [
        getattr(route, "path", str(route))
        for route in app.routes
        if getattr(route, "access", None) is None and getattr(route, "path", "") not in OPEN
    ]
