"""Submit: idempotency key, quota, job row, all in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.errors import FairlaneError, KeyReused
from fairlane.ids import floor
from fairlane.ledger.ledger import Accepted, Replayed, Submission, SubmitOutcome
from fairlane.ledger.sqlite.rows import chunks, dumps, marks, plan_text
from fairlane.ledger.sqlite.writer import Transaction
from fairlane.policy.admission import HOUR, Quota, Usage, admit

INLINE = 4096
"""Longer inputs stand in a table of their own."""

INSERT = """
INSERT INTO jobs (id, tenant, key, user, name, state, plan, lane, input, model, duration, tier,
                  level, timeout, ready_at, give_up_at, created_at, parent, cell, cells,
                  cells_left, tags, callback, trace)
VALUES (?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def submit(tx: Transaction, items: Sequence[Submission]) -> list[SubmitOutcome]:
    known = _known(tx, items)
    quotas = _Quotas(tx)
    outcomes: list[SubmitOutcome] = []
    accepted: list[Submission] = []
    for item in items:
        outcome: SubmitOutcome = Accepted(item.id)
        if item.id in known:
            pass  # run again after a lost answer
        elif (earlier := _earlier(tx, item)) is not None:
            outcome = earlier
        elif (refusal := quotas.refusal(item)) is not None:
            outcome = refusal
        else:
            _remember_key(tx, item)
            accepted.append(item)
            accepted.extend(item.cells)
        outcomes.append(outcome)
    _insert(tx, accepted)
    return outcomes


def _known(tx: Transaction, items: Sequence[Submission]) -> set[str]:
    return {
        row[0]
        for part in chunks([item.id for item in items])
        for row in tx.execute(f"SELECT id FROM jobs WHERE id IN ({marks(part)})", part)
    }


def _insert(tx: Transaction, items: list[Submission]) -> None:
    rows = []
    for item in items:
        inline = len(item.input) <= INLINE
        if not inline:
            tx.execute("INSERT INTO inputs VALUES (?, ?)", (item.id, item.input))
        rows.append(
            (
                item.id,
                item.tenant,
                item.key,
                item.user,
                item.name,
                plan_text(item.plan),
                item.plan[0].lane,
                item.input if inline else None,
                item.model,
                item.duration,
                item.tier,
                item.tier,
                item.timeout,
                item.ready_at,
                item.give_up_at,
                item.created_at,
                item.parent,
                dumps(item.cell) if item.cell else None,
                len(item.cells),
                len(item.cells),
                dumps(item.tags) if item.tags else None,
                item.callback,
                item.trace,
            )
        )
        if not item.cells:
            tx.touched.append(item.id)
    tx.executemany(INSERT, rows)


# --- idempotency -----------------------------------------------------------------------------------
def _earlier(tx: Transaction, item: Submission) -> Replayed | FairlaneError | None:
    if item.idempotency is None:
        return None
    scope, key, digest = item.idempotency
    row = tx.execute(
        "SELECT hash, job, status FROM idempotency WHERE scope = ? AND key = ? AND at > ?",
        (scope, key, item.created_at - item.keep_keys),
    ).fetchone()
    if row is None:
        return None
    if row[0] != digest:
        return KeyReused(key)
    return Replayed(row[1], row[2])


def _remember_key(tx: Transaction, item: Submission) -> None:
    if item.idempotency is not None:
        scope, key, digest = item.idempotency
        tx.execute(
            "INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?, ?, NULL)",
            (scope, key, digest, item.id, item.created_at),
        )


# --- quotas ----------------------------------------------------------------------------------------
class _Quotas:
    """Usage as the ledger counts it, plus what this batch has already accepted."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._users: dict[tuple[str, str | None, str], Usage] = {}

    def refusal(self, item: Submission) -> FairlaneError | None:
        jobs = max(1, len(item.cells))
        quota = self._own(item)
        usage = self._usage(item, quota)
        refused = admit(quota, usage, jobs)
        if refused is None:
            self._add(item, usage, jobs)
        return refused

    def _own(self, item: Submission) -> Quota:
        """The tier's quota, unless this user has limits of their own."""
        if item.user is None:
            return item.quota
        row = self._tx.execute(
            "SELECT pending, per_hour FROM quotas WHERE tenant = ? AND user = ?",
            (item.tenant, item.user),
        ).fetchone()
        if row is None:
            return item.quota
        pending, per_hour = row
        return item.quota._replace(
            pending=item.quota.pending if pending is None else pending,
            per_hour=item.quota.per_hour if per_hour is None else per_hour,
        )

    def _usage(self, item: Submission, quota: Quota) -> Usage:
        usage = Usage()
        if quota.counts_user:
            who = (item.tenant, item.user, "" if item.user is not None else item.key)
            usage = self._users.get(who) or usage_of(self._tx, *who, item.created_at)
        return usage._replace(waiting=self._tx.queued)

    def _add(self, item: Submission, usage: Usage, jobs: int) -> None:
        who = (item.tenant, item.user, "" if item.user is not None else item.key)
        self._users[who] = usage.plus(jobs, item.created_at)
        self._tx.queued += jobs


def usage_of(tx: Transaction, tenant: str, user: str | None, key: str, now: int) -> Usage:
    """One user's jobs, or one key's that name no user."""
    who = (
        "tenant = ? AND user = ?" if user is not None else "tenant = ? AND user IS NULL AND key = ?"
    )
    args = (tenant, user if user is not None else key)
    (pending,) = tx.execute(
        f"SELECT count(*) FROM jobs WHERE {who} AND finished_at IS NULL AND cells = 0", args
    ).fetchone()
    last_hour, oldest = tx.execute(
        f"SELECT count(*), min(created_at) FROM jobs "
        f"WHERE {who} AND id >= ? AND created_at > ? AND cells = 0",
        (*args, floor(now - HOUR), now - HOUR),
    ).fetchone()
    return Usage(pending, last_hour, oldest or 0)
