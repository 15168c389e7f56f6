"""Events of a job: one row per transition, numbered without a gap."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger import rows
from fairlane.ledger.job_columns import READ, read_job
from fairlane.ledger.postgres.locks import IN_ORDER
from fairlane.ledger.postgres.transaction import PostgresTransaction, Reader
from fairlane.model.event import Fact, implied, in_order
from fairlane.model.job import Job

JOB = ", ".join(column.postgres_name or column.name for column in READ)
"""The columns of a job, in the order `read_job` expects them."""

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


LAST_TOLD = """
SELECT DISTINCT ON (job) job, body FROM events WHERE job = ANY($1::text[])
ORDER BY job, first DESC
"""


async def write_events(tx: PostgresTransaction, job: Job, facts: list[Fact]) -> int:
    """Append these facts after the events that the row implies so far. Returns the time of the last
    one, which is never before an event that was already reported."""
    return (await write_all(tx, [(job, facts)]))[job.id]


async def write_all(
    tx: PostgresTransaction, told: Sequence[tuple[Job, list[Fact]]]
) -> dict[str, int]:
    """`write_events` for many jobs, each named once and locked by this transaction."""
    before = await _last_told(tx, [job.id for job, _ in told if job.written])
    firsts: list[int] = []
    lasts: list[int] = []
    bodies: list[str] = []
    times: dict[str, int] = {}
    for job, facts in told:
        behind = in_order([*implied(job), *facts], before.get(job.id, 0))
        firsts.append(job.written + 1)
        lasts.append(job.written + len(behind))
        bodies.append(rows.facts_text(behind))
        times[job.id] = behind[-1].at
    if times:
        await tx.execute(WRITE, list(times), firsts, bodies)
        await tx.execute(NUMBER, list(times), lasts)
    return times


async def _last_told(tx: PostgresTransaction, jobs: Sequence[str]) -> dict[str, int]:
    """The time of each job's last written event."""
    found = await tx.fetch(LAST_TOLD, jobs) if jobs else []
    return {job: rows.facts(body)[-1].at for job, body in found}


async def find(tx: Reader, job_id: str, *, lock: bool = True) -> Job | None:
    """The job, locked until this transaction ends unless `lock` is False."""
    row = await tx.fetchrow(LOCK if lock else FIND, job_id)
    return None if row is None else read_job(tuple(row))


async def find_all(tx: PostgresTransaction, ids: Sequence[str]) -> dict[str, Job]:
    """Those of these jobs that exist, locked."""
    return {row["id"]: read_job(tuple(row)) for row in await tx.fetch(LOCK_ALL, ids)}
