"""The rate limit per API key: a token bucket (GCRA)."""

from __future__ import annotations

from collections import OrderedDict

from fairlane.api.auth.roles import DEVELOPER, Identity
from fairlane.errors import Refused
from fairlane.model.key import Role

MINUTE_MICROSECONDS = 60_000_000
BURST_MICROSECONDS = 10_000_000
"""The burst: an idle key may send the requests of this many microseconds at once."""

BATCH_JOBS_PER_REQUEST = 10
"""This many jobs of a batch cost as much as one request."""

MAX_REMEMBERED_KEYS = 10_000


class RateLimiter:
    """A token bucket (GCRA) for each key, stored as the time at which it will be full again. Each
    process has its own buckets."""

    def __init__(self, per_minute: int) -> None:
        """0 = no limit."""
        self._limit = per_minute
        self._cost = MINUTE_MICROSECONDS // per_minute if per_minute else 0
        self._depth = max(BURST_MICROSECONDS, self._cost)
        self._full_at: OrderedDict[str, int] = OrderedDict()

    def admit(self, identity: Identity, now: int) -> None:
        """Takes the cost of one request, or raises Refused if the bucket is empty."""
        if not self._counts(identity):
            return
        wait = self._wait(identity, now)
        if wait > 0:
            raise Refused(
                "too_many_requests",
                f"a key may send {self._limit} requests per minute; try again later",
                limit=self._limit,
                frees_at=now + wait,
                setting="server.key_rate",
            )
        self._spend(identity, self._cost, now)

    def _wait(self, identity: Identity, now: int) -> int:
        return self._full_at.get(identity.key, now) + self._cost - self._depth - now

    def batch(self, identity: Identity, jobs: int, now: int) -> None:
        """Charges the jobs of a batch after its admission. The key's next requests wait for it."""
        if self._counts(identity):
            self._spend(identity, self._cost * jobs // BATCH_JOBS_PER_REQUEST, now)

    def _counts(self, identity: Identity) -> bool:
        """Returns whether the limit applies. Workers and development mode are exempt."""
        return bool(self._cost) and identity.role is not Role.WORKER and identity is not DEVELOPER

    def _spend(self, identity: Identity, cost: int, now: int) -> None:
        full_at = max(now, self._full_at.pop(identity.key, now))
        self._full_at[identity.key] = full_at + cost
        while len(self._full_at) > MAX_REMEMBERED_KEYS:
            self._full_at.popitem(last=False)
