"""Admission control in the simulator: the quotas of tiers and the queue limits of services."""

from __future__ import annotations

from collections import Counter, deque

from fairlane.model.catalog import Catalog
from fairlane.policy.queue_limits import admit_waiting, room
from fairlane.policy.quotas import HOUR_MICROSECONDS, Usage, admit, quota_of


class Admission:
    """Counts what the ledger counts: a user's queued and running jobs, jobs accepted in the last
    hour, and jobs that wait for each service."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._quotas = [quota_of(catalog, name) for name in catalog.tiers.names]
        self._pending: dict[str, int] = {}
        self._accepted: dict[str, deque[int]] = {}
        self.waiting: Counter[str] = Counter()

    def refusal(self, user: str, rank: int, service: str, now: int) -> str | None:
        """The limit that refuses one more job for this service. None if it is accepted, and then it
        counts."""
        share = self._catalog.limits.lowest_tier_share
        most = room(self._catalog.service(service).waiting, rank, len(self._quotas), share)
        if most and (full := admit_waiting(service, most, self.waiting[service])) is not None:
            return full.code
        accepted = self._accepted.setdefault(user, deque())
        while accepted and accepted[0] <= now - HOUR_MICROSECONDS:
            accepted.popleft()
        usage = Usage(
            self._pending.get(user, 0),
            len(accepted),
            accepted[0] if accepted else 0,
            self.waiting.total(),
        )
        refused = admit(self._quotas[rank], usage)
        if refused is not None:
            return refused.code
        accepted.append(now)
        self._pending[user] = usage.pending + 1
        return None

    def over(self, user: str) -> None:
        """One of the user's jobs has ended."""
        self._pending[user] -= 1
