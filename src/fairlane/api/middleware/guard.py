"""The guard middleware (ASGI): runs the checks, routes the request, and turns every error into
problem details."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from fairlane.api import dashboard_pages
from fairlane.api.auth.authentication import Authentication
from fairlane.api.auth.roles import OPEN, SESSION_PATH, is_public, permit
from fairlane.api.context import AppContext
from fairlane.api.http.headers import request_id
from fairlane.api.http.problem_details import ProblemDetails, problem_of, respond
from fairlane.api.middleware.access_log import log_request
from fairlane.api.middleware.declared_size import check_size
from fairlane.api.middleware.host_and_origin import HostAndOrigin
from fairlane.api.middleware.request_headers import RequestHeaders, read_headers
from fairlane.api.middleware.response_headers import ReplyGuard
from fairlane.api.routing import NO_QUERY, Declared, GuardedSocket, check_names

log = logging.getLogger("fairlane.api")

UNKNOWN = "unknown"
"""The route label of an unknown path. A label per path would make the metrics unbounded."""


class GuardMiddleware:
    """Checks run in the order of their cost: host and origin, key, size, rate limit."""

    def __init__(
        self, app: FastAPI, app_context: AppContext, hot: Mapping[tuple[str, str], Declared]
    ) -> None:
        self._app, self._app_context, self._hot = app, app_context, hot
        self._sockets = [route for route in app.routes if isinstance(route, GuardedSocket)]
        self._names = HostAndOrigin(app_context.settings.server, app_context.key_cache)
        self._authentication = Authentication(app_context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        seen = read_headers(scope)
        reply = ReplyGuard(scope, send, request_id(seen.headers.get(b"x-request-id", b"")))
        began = time.perf_counter()
        try:
            await self._admit(scope, receive, reply, seen)
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            await self._failed(scope, receive, reply, error)
        took = time.perf_counter() - began
        if scope["type"] == "http":  # the duration of a WebSocket is no latency
            route = scope["path"] if reply.hot else getattr(scope.get("route"), "path", UNKNOWN)
            self._app_context.instrumentation.answered(route, scope["method"], reply.status, took)
        if self._app_context.settings.server.access_log:
            log_request(reply, took)

    async def _admit(
        self, scope: Scope, receive: Receive, reply: ReplyGuard, seen: RequestHeaders
    ) -> None:
        scope["app_context"], scope["bounds"] = (
            self._app_context,
            self._app_context.bounds_of(scope["path"]),
        )
        scope["request_id"] = reply.request_id
        if scope["path"] not in OPEN:
            await self._names.check(scope, seen)
            if scope["type"] == "http" and (page := dashboard_pages.find(scope["path"])):
                await dashboard_pages.respond(page, scope, receive, reply.send)
                return
            await self._identify(scope, seen)
            check_size(seen, scope["bounds"].bytes)
            self._check_rate(scope)
        if scope["type"] == "websocket":
            await self._connect(scope, receive, reply)
            return
        found = self._hot.get((scope["method"], scope["path"]))
        if found is None or found.hot is None:
            await self._app(scope, receive, reply.send)
            return
        reply.hot = True
        permit(scope, found.access)
        check_names(scope, NO_QUERY)
        response = await found.hot(scope, receive)
        await response(scope, receive, reply.send)

    async def _identify(self, scope: Scope, seen: RequestHeaders) -> None:
        if not is_public(scope["path"]):
            scope["identity"] = await self._authentication.identify(scope, seen)
            return
        scope["authentication"], scope["seen"] = self._authentication, seen
        if scope["path"] == SESSION_PATH:
            scope["identity"] = await self._authentication.signed_in(scope, seen)

    async def _connect(self, scope: Scope, receive: Receive, reply: ReplyGuard) -> None:
        """Calls the WebSocket route without the framework's layers, which would take memory for
        hours."""
        for route in self._sockets:
            match, more = route.matches(scope)
            if match is Match.FULL:
                scope.update(more)
                await route.handle(scope, receive, reply.send)
                return
        raise ProblemDetails(404, "not_found", "there is no WebSocket at this path")

    async def _failed(
        self, scope: Scope, receive: Receive, reply: ReplyGuard, error: Exception
    ) -> None:
        problem = problem_of(error, self._app_context.engine.clock.now())
        if problem.status_code >= 500 and problem is not error:  # raised on purpose
            extra = {"request_id": reply.request_id, "path": scope["path"]}
            log.error("a request failed", exc_info=error, extra=extra)
        if reply.started:
            return
        self._app_context.instrumentation.refused(problem.status_code, problem.code)
        response = respond(problem, scope["path"], reply.request_id)
        if scope["type"] == "websocket":
            await _refuse_socket(response, reply)
        else:
            await response(scope, receive, reply.send)

    def _check_rate(self, scope: Scope) -> None:
        """Applies the rate limit. Cancels are exempt: they reduce the load."""
        if scope.get("method") != "DELETE" and scope.get("identity") is not None:
            self._app_context.rate_limiter.admit(
                scope["identity"], self._app_context.engine.clock.now()
            )


async def _refuse_socket(response: Response, reply: ReplyGuard) -> None:
    """Refuses a WebSocket handshake with an HTTP response."""
    start = {
        "type": "websocket.http.response.start",
        "status": response.status_code,
        "headers": response.raw_headers,
    }
    await reply.send(start)
    await reply.send({"type": "websocket.http.response.body", "body": response.body})
