"""Fan-out: a parent counts its unfinished cells. The transaction that ends the last cell ends the
parent."""

from __future__ import annotations

from fairlane.ledger.postgres.events import find, write_events
from fairlane.ledger.postgres.job_lists import add_to_list, add_to_live_list
from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.row_groups import ending
from fairlane.model.event import EventType, Fact
from fairlane.model.state import Move, State, moved

END = Statement("""
UPDATE jobs SET state = :state, rev = rev + 1, finished_at = :at, error_code = :code,
    error_message = :message
WHERE id = :id
""")


async def cell_ended(tx: PostgresTransaction, parent: str, now: int) -> str | None:
    """Count one cell down. Returns the parent if this ended it."""
    row = await tx.fetchrow(
        "UPDATE jobs SET cells_left = cells_left - 1 WHERE id = $1 RETURNING cells_left, state",
        parent,
    )
    if row is None or row[0] > 0 or row[1] not in (State.RUNNING, State.QUEUED):
        return None
    await _end(tx, parent, now)
    return parent


async def cell_reopened(tx: PostgresTransaction, parent: str, now: int, cells: int = 1) -> None:
    """Count one or several cells up again. A parent that had ended runs again."""
    state = await tx.fetchval(
        "UPDATE jobs SET cells_left = cells_left + $2 WHERE id = $1 RETURNING state", parent, cells
    )
    if state is not None and moved(State(state), Move.REOPEN) is not None:
        await tx.execute(
            "UPDATE jobs SET state = 'running', rev = rev + 1, finished_at = NULL, "
            "error_code = NULL, error_message = NULL WHERE id = $1",
            parent,
        )
        await add_to_live_list(tx, [parent])
        await _write_event(tx, parent, Fact(EventType.JOB_REOPENED, now, {}))


async def _end(tx: PostgresTransaction, parent: str, now: int) -> None:
    """End the parent. All ended cells are visible now: each held the parent's lock until its
    commit."""
    row = await tx.fetchrow(
        "SELECT count(*), count(*) FILTER (WHERE state <> 'completed') FROM jobs WHERE parent = $1",
        parent,
    )
    cells, bad = row if row is not None else (0, 0)
    end = ending(cells, bad, now)
    at = await _write_event(tx, parent, end.fact)
    await tx.execute(*END(state=end.state, at=at, code=end.code, message=end.message, id=parent))
    await add_to_list(tx, end.state, at, [parent])


async def _write_event(tx: PostgresTransaction, parent: str, fact: Fact) -> int:
    """Write one event and return its time."""
    job = await find(tx, parent)
    return fact.at if job is None else await write_events(tx, job, [fact])
