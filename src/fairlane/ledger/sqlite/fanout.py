"""Fan-out: a parent counts its unfinished cells. The transaction that ends the last cell ends the
parent."""

from __future__ import annotations

from fairlane.ledger.row_groups import ending
from fairlane.ledger.sqlite.events import find, write_events
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.event import EventType, Fact
from fairlane.model.state import Move, State, moved


def cell_ended(tx: SqliteTransaction, parent: str, now: int) -> str | None:
    """Count one cell down. Returns the parent if this ended it."""
    row = tx.execute(
        "UPDATE jobs SET cells_left = cells_left - 1 WHERE id = ? RETURNING cells_left, state",
        (parent,),
    ).fetchone()
    if row is None or row[0] > 0 or row[1] not in (State.RUNNING, State.QUEUED):
        return None
    _end(tx, parent, now)
    return parent


def cell_reopened(tx: SqliteTransaction, parent: str, now: int) -> None:
    """Count one cell up again. A parent that had ended runs again."""
    row = tx.execute(
        "UPDATE jobs SET cells_left = cells_left + 1 WHERE id = ? RETURNING state", (parent,)
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
        "error_message = ? WHERE id = ?",
        (end.state, at, end.code, end.message, parent),
    )


def _write_event(tx: SqliteTransaction, parent: str, fact: Fact) -> int:
    """Write one event and return its time."""
    job = find(tx, parent)
    return fact.at if job is None else write_events(tx, job, [fact])
