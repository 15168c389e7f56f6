"""A submit that cannot be taken now is turned away as soon as its head is read: nothing is awaited,
no task is begun, and of the body at most the tier is looked at. What is not plain goes on to the
guard, which says the same and takes longer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from fairlane.api.again import Heads
from fairlane.api.door import Door
from fairlane.api.heads import MOST_HEADERS, content_length, request_id, without_port
from fairlane.api.identity import ALLOWED, Identity
from fairlane.api.problems import (
    ALWAYS,
    MEDIA_TYPE,
    PATIENCE,
    Problem,
    problem_of,
    raw,
    respond,
)
from fairlane.errors import Refused

BATCH = b"/api/v1/jobs:batch"
SUBMITS = frozenset({b"/api/v1/jobs", b"/api/v1/tasks", BATCH})
ONCE = frozenset({b"authorization", b"host"})
UNUSUAL = frozenset({b"content-encoding", b"expect", b"origin", b"upgrade"})
"""Whoever sends these is answered by the guard."""

SPARED = (b"/internal/", b"/livez", b"/readyz")
MARK = "0" * 32

Headers = Sequence[tuple[bytes, bytes]]


class Caller(NamedTuple):
    identity: Identity
    path: bytes
    credential: bytes | None
    request_id: str


class Threshold:
    def __init__(self, door: Door, hosts: frozenset[str]) -> None:
        self._door, self._hosts = door, hosts
        self._noted = door.settings.server.access_log
        self._prepared: dict[bytes, Prepared] = {}
        self._heads = Heads[Caller]()

    @property
    def is_open(self) -> bool:
        """Whether nobody is refused now. Every request is noted by the guard, if any is."""
        return self._noted or (self._door.crowd.room_for_all and self._door.rates.all_pass)

    def caller(self, path: bytes, headers: Headers) -> Caller | None:
        """Who sends a plain submit, if that is known without asking."""
        found: dict[bytes, bytes] = {}
        size = 0
        for name, value in headers:
            size += len(name) + len(value)
            if name in UNUSUAL or (name in ONCE and name in found):
                return None
            found[name] = value
        length = content_length(found)
        if size > MOST_HEADERS or length is None or length > self._door.bounds.bytes:
            return None
        host = found.get(b"host", b"").decode("latin-1").lower()
        if self._hosts and without_port(host) not in self._hosts:
            return None
        credential = found.get(b"authorization")
        identity = self._door.keyring.at_hand(credential)
        if identity is None or identity.role not in ALLOWED["client"]:
            return None
        return Caller(identity, path, credential, request_id(found.get(b"x-request-id", b"")))

    def turned_away(self, caller: Caller) -> bytes | None:
        """The answer, if nobody comes in now, whatever they bring."""
        door, now = self._door, self._now()
        if door.crowd.has_room() and not door.rates.is_spent(caller.identity, now):
            return None
        return self._refuse(caller, caller.request_id, now)

    def turned_away_with(self, caller: Caller, body: bytes) -> bytes | None:
        """The answer, if somebody of the tier that stands in the body does not."""
        if self._has_room_for(caller, body):
            return None
        return self._refuse(caller, caller.request_id, self._now())

    def remember(self, data: bytes, caller: Caller) -> None:
        """These bytes were whole requests of theirs. If they were one, others may be like it."""
        self._heads.learn(data, caller)

    def turned_away_again(self, data: bytes) -> bytes | None:
        """The answer to bytes like those of somebody who was, if it is the same now."""
        like = self._heads.match(data)
        if like is None:
            return None
        caller, body, own_id = like
        door, now = self._door, self._now()
        if len(body) > door.bounds.bytes:
            return None
        if door.keyring.at_hand(caller.credential) != caller.identity:
            return None
        passes = door.crowd.has_room() and not door.rates.is_spent(caller.identity, now)
        if passes and (caller.path == BATCH or self._has_room_for(caller, body)):
            return None
        return self._refuse(caller, request_id(own_id), now)

    def _has_room_for(self, caller: Caller, body: bytes) -> bool:
        rank, tiers = self._rank(caller.identity, body), self._door.engine.core.catalog.tiers
        return rank is None or self._door.crowd.has_room(rank, len(tiers.names))

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
        names = self._door.engine.core.catalog.tiers.names
        likely = self._door.engine.likely_tier(identity.tenant, user, tier)
        return names.index(likely) if likely in names else None

    def _refuse(self, caller: Caller, own_id: str, now: int) -> bytes:
        door, path = self._door, caller.path
        try:
            door.rates.admit(caller.identity, now)
        except Refused as error:
            problem = problem_of(error, now)
            door.meter.turned_away(path.decode(), problem.status_code, problem.code)
            return raw(problem, path.decode(), own_id)
        prepared = self._prepared.get(path)
        if prepared is None:
            prepared = self._prepared[path] = _prepare(door.crowd.problem(), path)
        door.meter.turned_away(prepared.route, 503, "overloaded")
        return prepared.fill(own_id.encode(), door.crowd.retry_after())

    def _now(self) -> int:
        return self._door.engine.core.now()


# --- more connections than there may be ----------------------------------------------------------
def is_spared(method: bytes, url: bytes) -> bool:
    """Who takes something back, reports, or asks how it is, is never sent away."""
    return method == b"DELETE" or url.startswith(SPARED)


def too_many_connections() -> Problem:
    wait = round(PATIENCE * random.uniform(0.8, 1.2))
    return Problem(
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


def _prepare(problem: Problem, path: bytes) -> Prepared:
    body = bytes(respond(problem, path.decode(), MARK).body)
    before, _, after = body.partition(MARK.encode())
    fields = b"retry-after: %d\r\ncontent-length: %d\r\nx-request-id: %s\r\n"
    kind = b"content-type: %s\r\n" % MEDIA_TYPE.encode()
    head = STATUS_LINE[problem.status_code] + kind + fields + ALWAYS + b"\r\n"
    return Prepared(path.decode(), head, before, after)
