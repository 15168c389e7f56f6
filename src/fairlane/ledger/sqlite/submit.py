"""Submit in SQLite: idempotency key, quota and job row in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from fairlane.errors import FairlaneError
from fairlane.ids import floor
from fairlane.ledger.job_columns import OWN, RARE_OWN, RARE_SHARED, SHARED, values_of
from fairlane.ledger.messages import Common, Submission, SubmissionAccepted, SubmitOutcome
from fairlane.ledger.rows import MAX_INLINE_BYTES
from fairlane.ledger.sqlite.counters import Who
from fairlane.ledger.sqlite.idempotency import earlier_use, remember_key
from fairlane.ledger.sqlite.statements import chunks, marks, parts, placeholders
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.construct import maker
from fairlane.policy.quotas import HOUR_MICROSECONDS, Quota, Usage, admit, hour_excess

own_values, rare_own_values = values_of(Submission, OWN), values_of(Submission, RARE_OWN)
shared_values, rare_shared_values = values_of(Common, SHARED), values_of(Common, RARE_SHARED)
NOTHING = Usage()
MINUTE_MICROSECONDS = 60_000_000
accepted_as = maker(SubmissionAccepted)


@lru_cache
def insert(jobs: int, *, plain: bool) -> str:
    columns = OWN + SHARED if plain else OWN + SHARED + RARE_OWN + RARE_SHARED
    names = ", ".join(column.name for column in columns)
    return f"INSERT INTO jobs ({names}) VALUES {placeholders(len(columns), jobs)}"


def submit(tx: SqliteTransaction, items: Sequence[Submission]) -> list[SubmitOutcome]:
    known = _known(tx, items)
    quotas = _SqliteQuotas(tx)
    outcomes: list[SubmitOutcome] = []
    accepted: list[Submission] = []
    for item in items:
        outcome: SubmitOutcome = accepted_as((item.id, item.common.tier))
        if item.id in known:
            pass  # a retry after a lost response
        elif (earlier := earlier_use(tx, item)) is not None:
            outcome = earlier
        elif (refusal := quotas.refusal(item)) is not None:
            outcome = refusal
        else:
            remember_key(tx, item)
            accepted.append(item)
            accepted.extend(item.cells)
        outcomes.append(outcome)
    _insert(tx, accepted)
    return outcomes


def _known(tx: SqliteTransaction, items: Sequence[Submission]) -> set[str]:
    """Ids that are already written. An id above the newest one is not."""
    newest = tx.tally.newest
    return {
        row[0]
        for part in chunks([item.id for item in items if item.id <= newest])
        for row in tx.execute(f"SELECT id FROM jobs WHERE id IN ({marks(part)})", part)
    }


def _insert(tx: SqliteTransaction, items: list[Submission]) -> None:
    """Insert rows in order, because rowids follow it. Most batches have no rare columns, and such a
    row binds a third fewer values."""
    shared: dict[int, list[Any]] = {}
    rows, plain = [], True
    for item in items:
        common = item.common
        if id(common) not in shared:
            shared[id(common)] = shared_values(common)
            plain = plain and not any(rare_shared_values(common))
        plain = plain and item.parent is None and not item.cells
        if len(item.input or "") > MAX_INLINE_BYTES:
            tx.execute("INSERT INTO inputs VALUES (?, ?)", (item.id, item.input))
        rows.append(own_values(item) + shared[id(common)])
    if not plain:
        rows = [
            row + rare_own_values(item) + rare_shared_values(item.common)
            for row, item in zip(rows, items, strict=True)
        ]
    for part in parts(rows):
        statement = insert(len(part), plain=plain)
        tx.execute(statement, list(chain.from_iterable(part)))
    tx.touched += [item.id for item in items if not item.cells]
    tx.tally.newest = max([tx.tally.newest, *(item.id for item in items)])


# --- quotas ------------------------------------------------------------------------------------
class _SqliteQuotas:
    """Usage as the ledger counts it, plus what this batch has already accepted."""

    def __init__(self, tx: SqliteTransaction) -> None:
        self._tx = tx
        self._own_limits = tx.execute("SELECT 1 FROM quotas LIMIT 1").fetchone() is not None
        self._accepted: dict[Who, int] = {}
        self._counted: dict[Who, tuple[int, int]] = {}

    def refusal(self, item: Submission) -> FairlaneError | None:
        if item.refusal is not None:
            return item.refusal
        jobs = len(item.cells) or 1
        quota, who, tally = self._own(item), item.who, self._tx.tally
        usage = NOTHING
        if quota.counts_user:
            last_hour, oldest = self._hour(item, who) if quota.per_hour else (0, 0)
            usage = Usage(tally.pending(who), last_hour, oldest, tally.queued)
        elif quota.waiting < tally.queued + jobs:
            usage = Usage(waiting=tally.queued)
        refused = None if usage is NOTHING else admit(quota, usage, jobs)
        if refused is not None and (excess := hour_excess(quota, usage, jobs)) > 1:
            refused.frees_at = self._hour_frees_at(item, excess, usage)
        if refused is None:
            tally.queued += jobs
            tally.changed(who, jobs)
            if quota.per_hour:
                self._accepted[who] = self._accepted.get(who, 0) + jobs
        return refused

    def _own(self, item: Submission) -> Quota:
        """The tier's quota, unless this user has limits of their own."""
        if item.user is None or not self._own_limits:
            return item.common.quota
        row = self._tx.execute(
            "SELECT pending, per_hour FROM quotas WHERE tenant = ? AND user = ?",
            (item.common.tenant, item.user),
        ).fetchone()
        if row is None:
            return item.common.quota
        pending, per_hour = row
        return item.common.quota._replace(
            pending=item.common.quota.pending if pending is None else pending,
            per_hour=item.common.quota.per_hour if per_hour is None else per_hour,
        )

    def _hour(self, item: Submission, who: Who) -> tuple[int, int]:
        """(number of jobs accepted in the last hour, time of the oldest)."""
        if who not in self._counted:
            self._counted[who] = self._count(item)
        number, oldest = self._counted[who]
        return number + self._accepted.get(who, 0), oldest or item.common.created_at

    def _count(self, item: Submission) -> tuple[int, int]:
        recent, args = _recent(item)
        number, oldest = self._tx.execute(
            f"SELECT count(*), min(created_at) {recent}", args
        ).fetchone()
        return number, oldest or 0

    def _hour_frees_at(self, item: Submission, excess: int, usage: Usage) -> int | None:
        """When so many of the user's jobs of the last hour are an hour old (µs). The jobs that this
        batch has accepted are the newest. None if there are not so many."""
        if excess > usage.last_hour:
            return None
        recent, args = _recent(item)
        row = self._tx.execute(
            f"SELECT created_at {recent} ORDER BY created_at LIMIT 1 OFFSET ?", (*args, excess - 1)
        ).fetchone()
        return (row[0] if row is not None else item.common.created_at) + HOUR_MICROSECONDS


def _recent(item: Submission) -> tuple[str, tuple[object, ...]]:
    """The jobs of this user, or of this key, that were accepted in the last hour."""
    since = item.common.created_at - HOUR_MICROSECONDS
    early = floor(since - MINUTE_MICROSECONDS)  # concurrent calls may be written out of order
    mine = "user = ?" if item.user is not None else "user IS NULL AND key = ?"
    who = item.user if item.user is not None else item.common.key
    jobs = (
        f"FROM jobs WHERE tenant = ? AND {mine} "
        "AND rowid >= (SELECT rowid FROM jobs WHERE id >= ? ORDER BY id LIMIT 1) "
        "AND created_at > ? AND cells = 0"
    )
    return jobs, (item.common.tenant, who, early, since)
