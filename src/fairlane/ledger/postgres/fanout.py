"""Fan-out: a parent counts its unfinished cells. The transaction that ends the last cell ends the
parent."""

from __future__ import annotations

from fairlane.ledger.postgres.events import find, write_events
from fairlane.ledger.postgres.job_lists import add_to_list, add_to_live_list
from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.row_groups import NO_NEWS, EndedCells, ParentNews, ending
from fairlane.model.event import EventType, Fact
from fairlane.model.fanout import OnCellFailure
from fairlane.model.state import Move, State, moved

END = Statement("""
UPDATE jobs SET state = :state, rev = rev + 1, finished_at = :at, error_code = :code,
    error_message = :message, on_cell_failure = replace(on_cell_failure, 'stopping', 'stop')
WHERE id = :id
""")

COUNT_DOWN = """
UPDATE jobs SET cells_left = cells_left - $2, on_cell_failure =
    CASE WHEN $3 AND finished_at IS NULL AND on_cell_failure = 'stop' THEN 'stopping'
    ELSE on_cell_failure END
WHERE id = $1 RETURNING cells_left, state, on_cell_failure
"""


async def cells_ended(tx: PostgresTransaction, ended: EndedCells) -> ParentNews:
    """Count cells down. The last one ends the parent; a failed one may mark it to be stopped."""
    row = await tx.fetchrow(COUNT_DOWN, ended.parent, ended.number, ended.failed)
    if row is None or row[1] not in (State.RUNNING, State.QUEUED):
        return NO_NEWS
    if row[0] > 0:
        stopping = ended.failed and row[2] == OnCellFailure.STOPPING
        return ParentNews(stopping=ended.parent) if stopping else NO_NEWS
    await _end(tx, ended.parent, ended.now)
    return ParentNews(ended=ended.parent)


async def cells_reopened(tx: PostgresTransaction, parent: str, now: int, cells: int) -> None:
    """Count cells up again. A parent that had ended runs again."""
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
