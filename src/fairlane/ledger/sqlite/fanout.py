"""Fan-out: a parent counts its unfinished cells. The transaction that ends the last cell ends the
parent."""

from __future__ import annotations

from fairlane.ledger.row_groups import NO_NEWS, EndedCells, ParentNews, ending
from fairlane.ledger.sqlite.events import find, write_events
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.event import EventType, Fact
from fairlane.model.fanout import OnCellFailure
from fairlane.model.state import Move, State, moved

COUNT_DOWN = """
UPDATE jobs SET cells_left = cells_left - ?, on_cell_failure =
    CASE WHEN ? AND finished_at IS NULL AND on_cell_failure = 'stop' THEN 'stopping'
    ELSE on_cell_failure END
WHERE id = ? RETURNING cells_left, state, on_cell_failure
"""


def cells_ended(tx: SqliteTransaction, ended: EndedCells) -> ParentNews:
    """Count cells down. The last one ends the parent; a failed one may mark it to be stopped."""
    row = tx.execute(COUNT_DOWN, (ended.number, ended.failed, ended.parent)).fetchone()
    if row is None or row[1] not in (State.RUNNING, State.QUEUED):
        return NO_NEWS
    if row[0] > 0:
        stopping = ended.failed and row[2] == OnCellFailure.STOPPING
        return ParentNews(stopping=ended.parent) if stopping else NO_NEWS
    _end(tx, ended.parent, ended.now)
    return ParentNews(ended=ended.parent)


def cells_reopened(tx: SqliteTransaction, parent: str, now: int, cells: int) -> None:
    """Count cells up again. A parent that had ended runs again."""
    row = tx.execute(
        "UPDATE jobs SET cells_left = cells_left + ? WHERE id = ? RETURNING state", (cells, parent)
    ).fetchone()
    if row is not None and moved(State(row[0]), Move.REOPEN) is not None:
        tx.execute(
            "UPDATE jobs SET state = 'running', rev = rev + 1, finished_at = NULL, "
            "error_code = NULL, error_message = NULL WHERE id = ?",
            (parent,),
        )
        _write_event(tx, parent, Fact(EventType.JOB_REOPENED, now, {}))


def _end(tx: SqliteTransaction, parent: str, now: int) -> None:
    cells, bad = tx.execute(
        "SELECT count(*), count(*) FILTER (WHERE state <> 'completed') FROM jobs WHERE parent = ?",
        (parent,),
    ).fetchone()
    end = ending(cells, bad, now)
    at = _write_event(tx, parent, end.fact)
    tx.execute(
        "UPDATE jobs SET state = ?, rev = rev + 1, finished_at = ?, error_code = ?, "
        "error_message = ?, on_cell_failure = replace(on_cell_failure, 'stopping', 'stop') "
        "WHERE id = ?",
        (end.state, at, end.code, end.message, parent),
    )


def _write_event(tx: SqliteTransaction, parent: str, fact: Fact) -> int:
    """Write one event and return its time."""
    job = find(tx, parent)
    return fact.at if job is None else write_events(tx, job, [fact])
