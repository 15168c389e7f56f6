"""Fencing tokens: a settlement whose token does not hold is refused. A repetition of the one that
held is answered as before."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.messages import Settled, Settlement, Stale
from fairlane.ledger.postgres.transaction import Reader, Row
from fairlane.model.attempt import Outcome
from fairlane.model.lease import Lease
from fairlane.model.state import State

HOLDS = "jobs.id = v.id AND jobs.token = v.token"
"""The SQL condition that refuses a stale token, in every statement that settles."""

HOLDS_AS_SEEN = f"{HOLDS} AND jobs.lease_until = coalesce(v.seen_until, jobs.lease_until)"
"""Also refuses to take back a lease that was renewed since it was seen."""


async def present(tx: Reader, items: Sequence[Settlement]) -> dict[str, Row]:
    """(id, state, rev, the token that completed it) of each job."""
    if not items:
        return {}
    rows = await tx.fetch(
        "SELECT id, state, rev, ended_by FROM jobs WHERE id = ANY($1)",
        [item.lease.job for item in items],
    )
    return {row[0]: row for row in rows}


async def too_late(tx: Reader, item: Settlement, job: Row | None) -> Settled | Stale:
    """The outcome of an item whose token does not hold. A repeated settlement gets the same answer
    as before; any other gets the job's present state."""
    if job is None:
        return Stale(None)
    _, state, rev, ended_by = job
    if await _outcome(tx, item.lease, ended_by) == item.outcome:
        return Settled(State(state), rev, again=True)
    return Stale(State(state))


async def _outcome(tx: Reader, lease: Lease, ended_by: str | None) -> str | None:
    """How the attempt of this lease ended."""
    if lease.token == ended_by:
        return Outcome.COMPLETED
    found: str | None = await tx.fetchval(
        "SELECT outcome FROM attempts WHERE job = $1 AND fence = $2 AND token = $3",
        lease.job,
        lease.fence,
        lease.token,
    )
    return found
