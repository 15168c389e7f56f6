"""Allowed hosts and origins: protection against DNS rebinding and requests from foreign pages."""

from __future__ import annotations

from starlette.types import Scope

from fairlane.api.auth.key_cache import KeyCache
from fairlane.api.http.headers import without_port
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.middleware.request_headers import RequestHeaders
from fairlane.config.settings import ServerSettings

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
HOSTS_HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})
ONCE = frozenset({b"host", b"idempotency-key"})
"""Headers that may occur once. A proxy might have checked the other copy of a duplicate."""


class HostAndOrigin:
    def __init__(self, server: ServerSettings, key_cache: KeyCache) -> None:
        self._key_cache, self._origins = key_cache, frozenset(server.origins)
        self._hosts = frozenset(filter(None, server.allowed_hosts))
        if server.loopback:
            self._hosts |= HOSTS_HERE

    async def check(self, scope: Scope, seen: RequestHeaders) -> None:
        repeated = ONCE & seen.repeated
        if repeated:
            first = min(repeated).decode().title()
            raise ProblemDetails(400, "repeated_header", f"send the header {first} only once")
        host = seen.headers.get(b"host", b"").decode("latin-1").lower()
        name = without_port(host)
        if host and not name:
            raise ProblemDetails(
                400, "malformed_request", "Host is a name or an address, and a port"
            )
        if self._hosts and name not in self._hosts:
            raise ProblemDetails(
                421, "host_not_allowed", "this host name is not in server.allowed_hosts"
            )
        origin = seen.headers.get(b"origin", b"").decode("latin-1").lower()
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE
        if origin and changes and not await self._same_origin(origin, host):
            raise ProblemDetails(403, "origin_not_allowed", "pages of this origin may not do that")

    async def _same_origin(self, origin: str, host: str) -> bool:
        own = {f"http://{host}", f"https://{host}"}
        if origin in own or origin in self._origins:
            return True
        return (
            without_port(origin.partition("://")[2]) in HOSTS_HERE
            and await self._key_cache.development()
        )
