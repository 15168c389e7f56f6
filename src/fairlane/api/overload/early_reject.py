"""Early rejection: a submit that cannot be accepted is refused as soon as its head is read. Unusual
requests go on to the middleware."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from fairlane.api.auth.roles import ALLOWED, Identity
from fairlane.api.context import AppContext
from fairlane.api.http.headers import MAX_HEADER_BYTES, content_length, request_id, without_port
from fairlane.api.http.problem_details import (
    ALWAYS,
    DEFAULT_RETRY_AFTER_SECONDS,
    MEDIA_TYPE,
    ProblemDetails,
    problem_of,
    raw,
    respond,
)
from fairlane.api.overload.request_matcher import RequestMatcher
from fairlane.errors import Refused

BATCH = b"/api/v1/jobs:batch"
SUBMITS = frozenset({b"/api/v1/jobs", b"/api/v1/tasks", BATCH})
ONCE = frozenset({b"authorization", b"host"})
UNUSUAL = frozenset({b"content-encoding", b"expect", b"origin", b"upgrade"})
"""Whoever sends these is answered by the guard."""

SPARED = (b"/internal/", b"/livez", b"/readyz")
MARK = "0" * 32

Headers = Sequence[tuple[bytes, bytes]]


class KnownCaller(NamedTuple):
    identity: Identity
    path: bytes
    credential: bytes | None
    request_id: str


class EarlyReject:
    def __init__(self, app_context: AppContext, hosts: frozenset[str]) -> None:
        self._app_context, self._hosts = app_context, hosts
        self._noted = app_context.settings.server.access_log
        self._prepared: dict[bytes, Prepared] = {}
        self._heads = RequestMatcher[KnownCaller]()

    @property
    def is_open(self) -> bool:
        """Whether nobody is refused now. Every request is noted by the guard, if any is."""
        return self._noted or (
            self._app_context.limiter.room_for_all and self._app_context.rate_limiter.all_pass
        )

    def caller(self, path: bytes, headers: Headers) -> KnownCaller | None:
        """Who sends a plain submit, if that is known without asking."""
        found: dict[bytes, bytes] = {}
        size = 0
        for name, value in headers:
            size += len(name) + len(value)
            if name in UNUSUAL or (name in ONCE and name in found):
                return None
            found[name] = value
        length = content_length(found)
        if size > MAX_HEADER_BYTES or length is None or length > self._app_context.bounds.bytes:
            return None
        host = found.get(b"host", b"").decode("latin-1").lower()
        if self._hosts and without_port(host) not in self._hosts:
            return None
        credential = found.get(b"authorization")
        identity = self._app_context.key_cache.at_hand(credential)
        if identity is None or identity.role not in ALLOWED["client"]:
            return None
        return KnownCaller(identity, path, credential, request_id(found.get(b"x-request-id", b"")))

    def turned_away(self, caller: KnownCaller) -> bytes | None:
        """The answer, if nobody comes in now, whatever they bring."""
        app_context, now = self._app_context, self._now()
        if app_context.limiter.has_room() and not app_context.rate_limiter.is_spent(
            caller.identity, now
        ):
            return None
        return self._refuse(caller, caller.request_id, now)

    def turned_away_with(self, caller: KnownCaller, body: bytes) -> bytes | None:
        """The answer, if somebody of the tier that stands in the body does not."""
        if self._has_room_for(caller, body):
            return None
        return self._refuse(caller, caller.request_id, self._now())

    def remember(self, data: bytes, caller: KnownCaller) -> None:
        """These bytes were whole requests of theirs. If they were one, others may be like it."""
        self._heads.learn(data, caller)

    def turned_away_again(self, data: bytes) -> bytes | None:
        """The answer to bytes like those of somebody who was, if it is the same now."""
        like = self._heads.match(data)
        if like is None:
            return None
        caller, body, own_id = like
        app_context, now = self._app_context, self._now()
        if len(body) > app_context.bounds.bytes:
            return None
        if app_context.key_cache.at_hand(caller.credential) != caller.identity:
            return None
        passes = app_context.limiter.has_room() and not app_context.rate_limiter.is_spent(
            caller.identity, now
        )
        if passes and (caller.path == BATCH or self._has_room_for(caller, body)):
            return None
        return self._refuse(caller, request_id(own_id), now)

    def _has_room_for(self, caller: KnownCaller, body: bytes) -> bool:
        rank, tiers = self._rank(caller.identity, body), self._app_context.engine.catalog.tiers
        return rank is None or self._app_context.limiter.has_room(rank, len(tiers.names))

    def _rank(self, identity: Identity, body: bytes) -> int | None:
        """None if others have to say that."""
        try:
            asked: Any = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(asked, dict):
            return None
        user, tier = asked.get("user_id"), asked.get("priority")
        if not isinstance(user, str | None) or (tier is not None and not identity.set_priority):
            return None
        names = self._app_context.engine.catalog.tiers.names
        likely = self._app_context.engine.likely_tier(identity.tenant, user, tier)
        return names.index(likely) if likely in names else None

    def _refuse(self, caller: KnownCaller, own_id: str, now: int) -> bytes:
        app_context, path = self._app_context, caller.path
        try:
            app_context.rate_limiter.admit(caller.identity, now)
        except Refused as error:
            problem = problem_of(error, now)
            app_context.instrumentation.turned_away(
                path.decode(), problem.status_code, problem.code
            )
            return raw(problem, path.decode(), own_id)
        prepared = self._prepared.get(path)
        if prepared is None:
            prepared = self._prepared[path] = _prepare(app_context.limiter.problem(), path)
        app_context.instrumentation.turned_away(prepared.route, 503, "overloaded")
        return prepared.fill(own_id.encode(), app_context.limiter.retry_after())

    def _now(self) -> int:
        return self._app_context.engine.clock.now()


# --- more connections than there may be ----------------------------------------------------------
def is_spared(method: bytes, url: bytes) -> bool:
    """Who takes something back, reports, or asks how it is, is never sent away."""
    return method == b"DELETE" or url.startswith(SPARED)


def too_many_connections() -> ProblemDetails:
    wait = round(DEFAULT_RETRY_AFTER_SECONDS * random.uniform(0.8, 1.2))
    return ProblemDetails(
        503,
        "too_many_connections",
        "there are as many connections as there may be; close some, or try again later",
        headers={"Retry-After": str(wait)},
    )


# --- answers as they go over the wire ------------------------------------------------------------
class Prepared(NamedTuple):
    """An answer without what differs: when to come back, and the id of the request."""

    route: str
    head: bytes
    before: bytes
    after: bytes

    def fill(self, own: bytes, seconds: int) -> bytes:
        size = len(self.before) + len(own) + len(self.after)
        return b"".join([self.head % (seconds, size, own), self.before, own, self.after])


def _prepare(problem: ProblemDetails, path: bytes) -> Prepared:
    body = bytes(respond(problem, path.decode(), MARK).body)
    before, _, after = body.partition(MARK.encode())
    fields = b"retry-after: %d\r\ncontent-length: %d\r\nx-request-id: %s\r\n"
    kind = b"content-type: %s\r\n" % MEDIA_TYPE.encode()
    head = STATUS_LINE[problem.status_code] + kind + fields + ALWAYS + b"\r\n"
    return Prepared(path.decode(), head, before, after)
