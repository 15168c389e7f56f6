"""A job's events: one row a move, numbered without a gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlane.ledger import rows
from fairlane.ledger.postgres.locks import IN_ORDER
from fairlane.ledger.postgres.transaction import Reader, Transaction
from fairlane.model.event import Fact, implied
from fairlane.model.job import Job

JOB = rows.JOB.replace(" user,", " username,")
"""The columns of a job, in the order `rows.job` expects them."""

FIND = f"SELECT {JOB} FROM jobs WHERE id = $1"
LOCK = f"{FIND} FOR UPDATE"
LOCK_ALL = f"SELECT {JOB} FROM jobs WHERE id = ANY($1::text[]) {IN_ORDER}"

WRITE = """
INSERT INTO events (job, first, body)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])
"""
NUMBER = """
UPDATE jobs SET seq = v.last, written = v.last
FROM unnest($1::text[], $2::bigint[]) v (id, last) WHERE jobs.id = v.id
"""


async def write_events(tx: Transaction, job: Job, facts: list[Fact]) -> None:
    """Write these facts down, behind what the row has implied so far."""
    await write_all(tx, [(job, facts)])


async def write_all(tx: Transaction, told: Iterable[tuple[Job, list[Fact]]]) -> None:
    """The same for many jobs, each named once and locked by this transaction."""
    ids: list[str] = []
    firsts: list[int] = []
    lasts: list[int] = []
    bodies: list[str] = []
    for job, facts in told:
        behind = [*implied(job), *facts]
        ids.append(job.id)
        firsts.append(job.written + 1)
        lasts.append(job.written + len(behind))
        bodies.append(rows.facts_text(behind))
    if ids:
        await tx.execute(WRITE, ids, firsts, bodies)
        await tx.execute(NUMBER, ids, lasts)


async def find(tx: Reader, job_id: str, *, lock: bool = True) -> Job | None:
    """The job, which nobody else changes until this transaction ends, unless it is only looked
    at."""
    row = await tx.fetchrow(LOCK if lock else FIND, job_id)
    return None if row is None else rows.job(tuple(row))


async def find_all(tx: Transaction, ids: Sequence[str]) -> dict[str, Job]:
    """Those of these jobs that exist, locked."""
    return {row["id"]: rows.job(tuple(row)) for row in await tx.fetch(LOCK_ALL, ids)}
