"""A job's events: one row a move, numbered without a gap."""

from __future__ import annotations

from fairlane.ledger import rows
from fairlane.ledger.sqlite.writer import Transaction
from fairlane.model.event import Fact, implied
from fairlane.model.job import Job


def write_events(tx: Transaction, job: Job, facts: list[Fact]) -> None:
    """Write these facts down, behind what the row has implied so far."""
    facts = [*implied(job), *facts]
    tx.execute(
        "INSERT INTO events VALUES (?, ?, ?)", (job.id, job.written + 1, rows.facts_text(facts))
    )
    last = job.written + len(facts)
    tx.execute("UPDATE jobs SET seq = ?, written = ? WHERE id = ?", (last, last, job.id))


def find(tx: Transaction, job_id: str) -> Job | None:
    row = tx.execute(f"SELECT {rows.JOB} FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else rows.job(row)
