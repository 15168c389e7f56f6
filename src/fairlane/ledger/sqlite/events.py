"""Events of a job: one row per transition, numbered without a gap."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger import rows
from fairlane.ledger.job_columns import JOB, read_job
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.event import Fact, implied, in_order
from fairlane.model.job import Job


def write_events(tx: SqliteTransaction, job: Job, facts: list[Fact]) -> int:
    """Append these facts after the events that the row implies so far. Returns the time of the last
    one, which is never before an event that was already reported."""
    return write_all(tx, [(job, facts)])[job.id]


def write_all(tx: SqliteTransaction, told: Sequence[tuple[Job, list[Fact]]]) -> dict[str, int]:
    """`write_events` for many jobs, each named once."""
    times: dict[str, int] = {}
    events: list[tuple[str, int, str]] = []
    numbers: list[tuple[int, int, str]] = []
    for job, facts in told:
        behind = in_order([*implied(job), *facts], _last_told(tx, job))
        last = job.written + len(behind)
        events.append((job.id, job.written + 1, rows.facts_text(behind)))
        numbers.append((last, last, job.id))
        times[job.id] = behind[-1].at
    tx.executemany("INSERT INTO events VALUES (?, ?, ?)", events)
    tx.executemany("UPDATE jobs SET seq = ?, written = ? WHERE id = ?", numbers)
    return times


def _last_told(tx: SqliteTransaction, job: Job) -> int:
    """The time of the last written event."""
    if not job.written:
        return 0
    (body,) = tx.execute(
        "SELECT body FROM events WHERE job = ? ORDER BY first DESC LIMIT 1", (job.id,)
    ).fetchone()
    return rows.facts(body)[-1].at


def find(tx: SqliteTransaction, job_id: str) -> Job | None:
    row = tx.execute(f"SELECT {JOB} FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else read_job(row)
