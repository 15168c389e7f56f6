"""Fencing tokens: a settlement whose token does not hold is refused. A repetition of the one that
held is answered as before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.ledger.messages import Settled, Settlement, Stale
from fairlane.ledger.sqlite.statements import chunks, marks
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.attempt import Outcome
from fairlane.model.lease import Lease
from fairlane.model.state import State

HOLDS = "jobs.id = v.id AND jobs.token = v.token"
"""The SQL condition that refuses a stale token, in every statement that settles."""

HOLDS_AS_SEEN = f"{HOLDS} AND jobs.lease_until = coalesce(v.seen_until, jobs.lease_until)"
"""Also refuses to take back a lease that was renewed since it was seen."""


class Present(NamedTuple):
    """A job's present state; `ended_by` is the token that completed it."""

    token: str | None
    lease_until: int | None
    state: str
    rev: int
    ended_by: str | None


def present_states(tx: SqliteTransaction, items: Sequence[Settlement]) -> dict[str, Present]:
    return {
        job: Present(*values)
        for part in chunks([item.lease.job for item in items])
        for job, *values in tx.execute(
            "SELECT id, token, lease_until, state, rev, ended_by FROM jobs "
            f"WHERE id IN ({marks(part)})",
            part,
        )
    }


def holding(tx: SqliteTransaction, items: Sequence[Settlement]) -> list[Settlement]:
    """The first settlement of each token that holds."""
    present = present_states(tx, items)
    first: dict[str, Settlement] = {}
    for item in items:
        job = present.get(item.lease.job)
        held = job is not None and job.token == item.lease.token
        if job is not None and held and item.lease_until in (None, job.lease_until):
            first.setdefault(item.lease.token, item)
    return list(first.values())


def too_late(tx: SqliteTransaction, item: Settlement, present: Present | None) -> Settled | Stale:
    """The outcome of an item whose token does not hold. A repeated settlement gets the same answer
    as before; any other gets the job's present state."""
    if present is None:
        return Stale(None)
    if _outcome(tx, item.lease, present.ended_by) == item.outcome:
        return Settled(State(present.state), present.rev, again=True)
    return Stale(State(present.state))


def _outcome(tx: SqliteTransaction, lease: Lease, ended_by: str | None) -> str | None:
    """How the attempt of this lease ended."""
    if lease.token == ended_by:
        return Outcome.COMPLETED
    row = tx.execute(
        "SELECT outcome FROM attempts WHERE job = ? AND fence = ? AND token = ?",
        (lease.job, lease.fence, lease.token),
    ).fetchone()
    return None if row is None else row[0]
