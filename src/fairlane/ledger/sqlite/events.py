"""Events of a job: one row per transition, numbered without a gap."""

from __future__ import annotations

from fairlane.ledger import rows
from fairlane.ledger.job_columns import JOB, read_job
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.event import Fact, implied, in_order
from fairlane.model.job import Job


def write_events(tx: SqliteTransaction, job: Job, facts: list[Fact]) -> int:
    """Append these facts after the events that the row implies so far. Returns the time of the last
    one, which is never before an event that was already reported."""
    facts = in_order([*implied(job), *facts], _last_told(tx, job))
    tx.execute(
        "INSERT INTO events VALUES (?, ?, ?)", (job.id, job.written + 1, rows.facts_text(facts))
    )
    last = job.written + len(facts)
    tx.execute("UPDATE jobs SET seq = ?, written = ? WHERE id = ?", (last, last, job.id))
    return facts[-1].at


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
