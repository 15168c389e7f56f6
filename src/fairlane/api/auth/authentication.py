"""Authentication: an API key, a ticket, a browser session, or none during development. Wrong keys
are counted."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.types import Scope

from fairlane.api.auth.brute_force import FailedLogins
from fairlane.api.auth.roles import Identity
from fairlane.api.auth.sessions import CSRF_COOKIE, SESSION_COOKIE, cookies_of
from fairlane.api.auth.tickets import read_ticket
from fairlane.api.context import AppContext
from fairlane.api.http.problem_details import ProblemDetails, unauthorized
from fairlane.api.middleware.client_address import ClientAddress
from fairlane.api.middleware.host_and_origin import SAFE
from fairlane.api.middleware.request_headers import RequestHeaders


class Authentication:
    def __init__(self, app_context: AppContext) -> None:
        self._app_context, self._failures = app_context, FailedLogins()
        self._source = ClientAddress(app_context.settings.server.trusted_proxies)

    async def identify(self, scope: Scope, seen: RequestHeaders) -> Identity:
        given = seen.headers.get(b"authorization")
        if given is None:
            identity = (
                await self._ticket(scope)
                or await self._session(scope, seen)
                or await self._app_context.key_cache.identify(None)
            )
            if identity is None:
                raise unauthorized("send a key: Authorization: Bearer id.secret")
            return identity
        kind, _, credential = given.decode("latin-1").partition(" ")
        if kind.lower() != "bearer" or b"authorization" in seen.repeated:
            credential = ""
        return await self.check_key(scope, seen, credential.strip())

    async def check_key(self, scope: Scope, seen: RequestHeaders, credential: str) -> Identity:
        """Returns the identity of a key. Raises 401, or 429 after too many wrong keys."""
        found = await self._app_context.key_cache.identify(credential)
        if found is None:
            raise self._wrong_key(self._source.of(scope, seen), credential.partition(".")[0][:64])
        return found

    async def signed_in(self, scope: Scope, seen: RequestHeaders) -> Identity | None:
        """Returns the identity of a request to a public path, if it has a valid one."""
        try:
            return await self.identify(scope, seen)
        except ProblemDetails:
            return None

    async def _session(self, scope: Scope, seen: RequestHeaders) -> Identity | None:
        """Returns the identity of the session cookie. A request that changes something needs the
        CSRF token of the session, and a WebSocket an Origin."""
        cookie = cookies_of(seen.headers.get(b"cookie")).get(SESSION_COOKIE)
        if cookie is None:
            return None
        app_context = self._app_context
        session = await app_context.sessions.find(cookie, app_context.engine.clock.now())
        identity = await app_context.key_cache.named(session.key) if session is not None else None
        if session is None or identity is None:
            return None
        if scope["type"] == "websocket":
            if b"origin" not in seen.headers:
                raise ProblemDetails(403, "origin_not_allowed", "a browser sends its Origin")
        elif scope["method"] not in SAFE:
            given = seen.headers.get(b"x-csrf-token", b"")
            if not app_context.sessions.is_csrf_token(session, given):
                detail = f"send the value of the cookie {CSRF_COOKIE} as X-CSRF-Token"
                raise ProblemDetails(403, "csrf_token_missing", detail)
        scope["session"] = session
        return identity

    def _wrong_key(self, source: str, name: str) -> ProblemDetails:
        """Counts a wrong key, and returns 401, or 429 after too many. The right secret is always
        accepted, so that wrong guesses lock out no other client at the same address. Secrets are
        too long to guess."""
        if self._failures.too_many(source, name):
            detail = "too many wrong keys from this address; wait a minute, or send the right one"
            headers = {"Retry-After": "60", "Connection": "close"}
            return ProblemDetails(429, "too_many_failures", detail, headers=headers)
        self._failures.note(source, name)
        return unauthorized("this key is not valid")

    async def _ticket(self, scope: Scope) -> Identity | None:
        if b"ticket=" not in scope["query_string"]:
            return None
        app_context = self._app_context
        given = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [""])
        now = app_context.engine.clock.now()
        ticket = read_ticket(app_context.signer, given[0], now) if len(given) == 1 else None
        if ticket is None:
            raise unauthorized("this ticket is not valid: ask for a new one")
        identity = await app_context.key_cache.named(ticket.key, ticket.job)
        book = app_context.engine.api_keys
        if identity is None or not await book.redeem(ticket.id, ticket.until, now):
            raise unauthorized("this ticket is not valid: ask for a new one")
        return identity
