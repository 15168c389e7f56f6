"""Middleware: authentication, allowed hosts and origins, size and rate limits. It runs before the
body is read, and turns every error into problem details."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from fairlane.api.auth.brute_force import FailedLogins
from fairlane.api.auth.roles import OPEN, Identity, permit
from fairlane.api.auth.tickets import read_ticket
from fairlane.api.context import AppContext
from fairlane.api.http.body import too_large
from fairlane.api.http.headers import MAX_HEADER_BYTES, content_length, request_id, without_port
from fairlane.api.http.problem_details import ProblemDetails, problem_of, respond, unauthorized
from fairlane.api.routing import NO_QUERY, Declared, GuardedSocket, check_names

log = logging.getLogger("fairlane.api")

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
UNKNOWN = "unknown"
"""The pattern of a path that has none: what is tried is not remembered."""

FORWARDED = b"x-forwarded-for"
HOSTS_HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})
WANTED = frozenset(
    {
        b"authorization",
        b"host",
        b"origin",
        b"x-request-id",
        FORWARDED,
        b"content-length",
        b"content-encoding",
        b"idempotency-key",
    }
)
ONCE = frozenset({b"host", b"idempotency-key"})
"""Of two, somebody else may read the other one."""


class RequestLog(NamedTuple):
    """What the guard looks at. `repeated`: one of them stands there twice, and others may read
    the other one."""

    headers: Mapping[bytes, bytes]
    size: int
    repeated: frozenset[bytes]


class GuardMiddleware:
    def __init__(
        self, app: FastAPI, app_context: AppContext, hot: Mapping[tuple[str, str], Declared]
    ) -> None:
        self._app, self._app_context, self._hot = app, app_context, hot
        self._sockets = [route for route in app.routes if isinstance(route, GuardedSocket)]
        server = app_context.settings.server
        self._hosts = frozenset(filter(None, server.allowed_hosts))
        if server.loopback:
            self._hosts |= HOSTS_HERE
        self._proxies = [ipaddress.ip_network(each) for each in server.trusted_proxies]
        self._origins = frozenset(server.origins)
        self._failures = FailedLogins()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        seen = _look(scope)
        reply = ReplyGuard(scope, send, request_id(seen.headers.get(b"x-request-id", b"")))
        began = time.perf_counter()
        try:
            await self._admit(scope, receive, reply, seen)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends here
            await self._failed(scope, receive, reply, error)
        took = time.perf_counter() - began
        if scope["type"] == "http":  # a WebSocket lasts as long as somebody listens
            route = scope["path"] if reply.hot else getattr(scope.get("route"), "path", UNKNOWN)
            self._app_context.instrumentation.answered(route, scope["method"], reply.status, took)
        if self._app_context.settings.server.access_log:
            _note(reply, took)

    async def _admit(
        self, scope: Scope, receive: Receive, reply: ReplyGuard, seen: RequestLog
    ) -> None:
        scope["app_context"], scope["bounds"] = (
            self._app_context,
            self._app_context.bounds_of(scope["path"]),
        )
        scope["request_id"] = reply.request_id
        if scope["path"] not in OPEN:
            await self._check_name(scope, seen)
            scope["identity"] = await self._identify(scope, seen)
            self._check_size(seen, scope["bounds"].bytes)
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

    async def _connect(self, scope: Scope, receive: Receive, reply: ReplyGuard) -> None:
        """Straight to the listener: what stays open for hours carries as little as possible."""
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
        problem = problem_of(error, self._app_context.engine.core.now())
        if problem.status_code >= 500 and problem is not error:  # whoever raised it meant it
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

    # --- by which name, from which page --------------------------------------------------------
    async def _check_name(self, scope: Scope, seen: RequestLog) -> None:
        repeated = ONCE & seen.repeated
        if repeated:
            first = min(repeated).decode().title()
            raise ProblemDetails(400, "repeated_header", f"{first} is sent once")
        host = seen.headers.get(b"host", b"").decode("latin-1").lower()
        name = without_port(host)
        if host and not name:
            raise ProblemDetails(
                400, "malformed_request", "Host is a name or an address, and a port"
            )
        if self._hosts and name not in self._hosts:
            raise ProblemDetails(
                421, "host_not_allowed", "this is not the name it may be called by"
            )
        origin = seen.headers.get(b"origin", b"").decode("latin-1").lower()
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE
        if origin and changes and not await self._same_origin(origin, host):
            raise ProblemDetails(403, "origin_not_allowed", "this web page may not do that")

    async def _same_origin(self, origin: str, host: str) -> bool:
        own = {f"http://{host}", f"https://{host}"}
        if origin in own or origin in self._origins:
            return True
        return (
            without_port(origin.partition("://")[2]) in HOSTS_HERE
            and await self._app_context.key_cache.development()
        )

    # --- who -----------------------------------------------------------------------------------
    async def _identify(self, scope: Scope, seen: RequestLog) -> Identity:
        given = seen.headers.get(b"authorization")
        if given is None:
            identity = await self._ticket(scope) or await self._app_context.key_cache.identify(None)
            if identity is None:
                raise unauthorized("send a key: Authorization: Bearer id.secret")
            return identity
        kind, _, credential = given.decode("latin-1").partition(" ")
        credential = credential.strip()
        bearer = kind.lower() == "bearer" and b"authorization" not in seen.repeated
        found = await self._app_context.key_cache.identify(credential) if bearer else None
        if found is None:
            raise self._wrong_key(self._source(scope, seen), credential.partition(".")[0][:64])
        return found

    def _wrong_key(self, source: str, name: str) -> ProblemDetails:
        """The right secret passes at all times, so that guesses lock out nobody else who comes from
        the same address: secrets are too long to be found by guessing."""
        if self._failures.too_many(source, name):
            detail = "too many wrong keys from this address; wait a minute, or send the right one"
            headers = {"Retry-After": "60", "Connection": "close"}
            return ProblemDetails(429, "too_many_failures", detail, headers=headers)
        self._failures.note(source, name)
        return unauthorized("this key does not hold")

    async def _ticket(self, scope: Scope) -> Identity | None:
        if b"ticket=" not in scope["query_string"]:
            return None
        app_context = self._app_context
        given = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [""])
        now = app_context.engine.core.now()
        ticket = read_ticket(app_context.signer, given[0], now) if len(given) == 1 else None
        if ticket is None:
            raise unauthorized("this ticket does not hold")
        identity = await app_context.key_cache.named(ticket.key, ticket.job)
        book = app_context.engine.core.ledger.keys
        if identity is None or not await book.redeem(ticket.id, ticket.until, now):
            raise unauthorized("this ticket does not hold")
        return identity

    def _source(self, scope: Scope, seen: RequestLog) -> str:
        """Where it came from; what a proxy says counts only if it is ours."""
        client = scope.get("client")
        address = client[0] if client else ""
        forwarded = seen.headers.get(FORWARDED, b"").decode("latin-1")
        for each in reversed([part.strip() for part in forwarded.split(",") if part.strip()]):
            if not self._is_ours(address):
                break
            address = each
        return str(address)

    def _is_ours(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)

    # --- how much, how often -------------------------------------------------------------------
    def _check_size(self, seen: RequestLog, most: int) -> None:
        close = {"Connection": "close"}
        if seen.size > MAX_HEADER_BYTES:
            raise ProblemDetails(
                431, "headers_too_large", "at most 16 KiB of headers", headers=close
            )
        if seen.headers.get(b"content-encoding", b"identity") != b"identity":
            raise ProblemDetails(
                415, "encoded_body", "send the body as it is, not encoded", headers=close
            )
        if (content_length(seen.headers) or 0) > most:
            raise too_large(most)

    def _check_rate(self, scope: Scope) -> None:
        """Who takes something back makes room: that is never refused."""
        if scope.get("method") != "DELETE":
            self._app_context.rate_limiter.admit(
                scope["identity"], self._app_context.engine.core.now()
            )


class ReplyGuard:
    """What goes out carries the request's id, and is taken for what it says it is."""

    __slots__ = ("_send", "hot", "request_id", "scope", "started", "status")

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self.scope, self._send, self.request_id = scope, send, request_id
        self.started, self.status, self.hot = False, 0, False

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self.started, self.status = True, message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self.request_id.encode()),
                (b"x-content-type-options", b"nosniff"),
                (b"referrer-policy", b"no-referrer"),
            ]
        elif kind == "websocket.accept":
            self.started, self.status = True, 101
        await self._send(message)


def _look(scope: Scope) -> RequestLog:
    """One pass over the headers."""
    found: dict[bytes, bytes] = {}
    size, repeated = 0, frozenset[bytes]()
    for name, value in scope["headers"]:
        size += len(name) + len(value)
        if name in WANTED:
            if name in found:
                repeated |= {name}
            before = found.get(name) if name == FORWARDED else None  # one line a proxy, perhaps
            found[name] = value if before is None else b"%s, %s" % (before, value)
    return RequestLog(found, size, repeated)


def _note(reply: ReplyGuard, took: float) -> None:
    """Never the query: it may hold a ticket."""
    identity = reply.scope.get("identity")
    extra = {
        "request_id": reply.request_id,
        "method": reply.scope.get("method", "WS"),
        "path": reply.scope["path"],
        "status": reply.status,
        "milliseconds": round(took * 1000, 1),
        "key": identity.key if identity is not None else None,
    }
    log.info("request", extra=extra)


async def _refuse_socket(response: Response, reply: ReplyGuard) -> None:
    """An answer instead of a WebSocket."""
    start = {
        "type": "websocket.http.response.start",
        "status": response.status_code,
        "headers": response.raw_headers,
    }
    await reply.send(start)
    await reply.send({"type": "websocket.http.response.body", "body": response.body})
