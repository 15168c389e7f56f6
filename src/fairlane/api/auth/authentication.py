"""Authentication: an API key, a ticket, or none during development. Wrong keys are counted."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.types import Scope

from fairlane.api.auth.brute_force import FailedLogins
from fairlane.api.auth.roles import Identity
from fairlane.api.auth.tickets import read_ticket
from fairlane.api.context import AppContext
from fairlane.api.http.problem_details import ProblemDetails, unauthorized
from fairlane.api.middleware.client_address import ClientAddress
from fairlane.api.middleware.request_headers import RequestHeaders


class Authentication:
    def __init__(self, app_context: AppContext) -> None:
        self._app_context, self._failures = app_context, FailedLogins()
        self._source = ClientAddress(app_context.settings.server.trusted_proxies)

    async def identify(self, scope: Scope, seen: RequestHeaders) -> Identity:
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
            raise self._wrong_key(self._source.of(scope, seen), credential.partition(".")[0][:64])
        return found

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
