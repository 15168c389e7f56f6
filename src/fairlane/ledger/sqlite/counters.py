"""Quota counters, kept in memory by the only writer. A transaction changes a draft; a durable
commit applies it."""

from __future__ import annotations

import sqlite3

from fairlane.model.job import fair_user

Who = str
"""A user for fairness accounting: see `fair_user`."""


class QuotaCounters:
    """`queued`: the number of queued jobs. `pending`: the number of queued or running jobs of each
    user that has any. `newest`: the highest id ever written."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.queued = 0
        self.newest = connection.execute("SELECT coalesce(max(id), '') FROM jobs").fetchone()[0]
        self.pending: dict[Who, int] = {}
        for tenant, user, key, state, number in connection.execute(
            "SELECT tenant, user, key, state, count(*) FROM jobs "
            "WHERE finished_at IS NULL AND cells = 0 GROUP BY tenant, user, key, state"
        ):
            who = fair_user(tenant, user, key)
            self.pending[who] = self.pending.get(who, 0) + number
            self.queued += number if state == "queued" else 0


class DraftCounters:
    """The counters as one transaction would leave them."""

    __slots__ = ("_changes", "_tally", "newest", "queued")

    def __init__(self, tally: QuotaCounters) -> None:
        self._tally = tally
        self._changes: dict[Who, int] = {}
        self.queued, self.newest = tally.queued, tally.newest

    def pending(self, who: Who) -> int:
        return self._tally.pending.get(who, 0) + self._changes.get(who, 0)

    def changed(self, who: Who, jobs: int) -> None:
        """Add `jobs` (may be negative) to the user's number of queued or running jobs."""
        self._changes[who] = self._changes.get(who, 0) + jobs

    def commit(self) -> None:
        tally = self._tally
        tally.queued, tally.newest = self.queued, self.newest
        for who, change in self._changes.items():
            left = tally.pending.get(who, 0) + change
            if left:
                tally.pending[who] = left
            else:
                tally.pending.pop(who, None)
