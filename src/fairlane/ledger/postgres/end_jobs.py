"""Ends living jobs by a request, in PostgreSQL: a cancel, or the stop of a fan-out after a failed
cell."""

from __future__ import annotations

from collections.abc import Container, Sequence

from fairlane.ledger.job_columns import read_job
from fairlane.ledger.messages import Ended, Request
from fairlane.ledger.postgres.credits import refund
from fairlane.ledger.postgres.events import JOB, find, write_all
from fairlane.ledger.postgres.fanout import cells_ended
from fairlane.ledger.postgres.job_lists import add_to_list
from fairlane.ledger.postgres.locks import hold_families
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.slots import keep_until
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.requested_end import STOPPED, RequestedEnd
from fairlane.ledger.requests import StopRequest
from fairlane.ledger.row_groups import ended_cells
from fairlane.model.attempt import Outcome
from fairlane.model.fanout import OnCellFailure
from fairlane.model.job import Job
from fairlane.model.lease import Slot

END = Statement(f"""
UPDATE jobs SET state = :state, rev = rev + 1, finished_at = v.at, token = NULL,
    lease_until = NULL, deadline = NULL, give_up_at = NULL, waited = v.waited, cells_left = 0,
    error_code = :code, error_message = :message,
    on_cell_failure = replace(on_cell_failure, 'stopping', 'stop')
FROM {table("id text, waited bigint, at bigint")} WHERE jobs.id = v.id
""")
END_ATTEMPTS = """
INSERT INTO attempts (job, fence, token, step, number, worker, region, started_at, ended_at,
    outcome)
SELECT id, fence, token, step, attempt, worker, region, started_at, v.at, $3
FROM unnest($1::text[], $2::bigint[]) v (job, at) JOIN jobs ON jobs.id = v.job
"""
CELLS = f"SELECT {JOB} FROM jobs WHERE parent = $1 ORDER BY id"
LIVING = f"SELECT {JOB} FROM jobs WHERE parent = $1 AND finished_at IS NULL ORDER BY id"


async def end_jobs(
    tx: PostgresTransaction,
    jobs: Sequence[Job],
    now: int,
    strict: Container[str],
    end: RequestedEnd,
) -> list[Ended]:
    """End these living jobs, which this transaction has locked, at once. The slots of a running
    call stay taken until its deadline if its service is strict, otherwise until its lease ends."""
    if not jobs:
        return []
    ended: list[Ended] = []
    for job in jobs:
        kept: tuple[Slot, ...] = ()
        if job.token is not None:
            until = job.deadline if job.current.service in strict else job.lease_until
            kept = await keep_until(tx, job.token, until or now)
            tx.running -= 1
        elif not job.fan_out:
            tx.line -= 1
        tx.touched.append(job.id)
        ended.append(Ended(job.id, job.rev + 1, job.token, kept))
    times = await write_all(tx, [(job, [end.fact(now)]) for job in jobs])
    await _end_attempts(tx, [job for job in jobs if job.token is not None], times)
    ids = [job.id for job in jobs]
    waited = [job.waited_until(times[job.id]) for job in jobs]
    await tx.execute(
        *END(
            state=end.state,
            code=end.code,
            message=end.message,
            id=ids,
            waited=waited,
            at=[times[job] for job in ids],
        )
    )
    await add_to_list(tx, end.state, max(times.values()), ids)
    for job in jobs:
        if end.refunds(job):
            await refund(tx, job.id, now)
    return ended


async def stop_cells(tx: PostgresTransaction, items: Sequence[StopRequest]) -> list[list[Ended]]:
    """End the living cells of parents that are marked to be stopped, and with them the parents."""
    await hold_families(tx, [Request(item.parent, None, "", item.now) for item in items])
    return [await _stop_cells(tx, item) for item in items]


async def _stop_cells(tx: PostgresTransaction, item: StopRequest) -> list[Ended]:
    parent = await find(tx, item.parent, lock=False)
    if parent is None or parent.on_cell_failure is not OnCellFailure.STOPPING:
        return []
    living = [read_job(tuple(row)) for row in await tx.fetch(LIVING, parent.id)]
    ended = await end_jobs(tx, living, item.now, item.strict, STOPPED)
    for cells in ended_cells((parent.id, job.id, STOPPED.state, item.now) for job in living):
        await cells_ended(tx, cells)
    return ended


async def _end_attempts(
    tx: PostgresTransaction, jobs: Sequence[Job], times: dict[str, int]
) -> None:
    if jobs:
        ids = [job.id for job in jobs]
        await tx.execute(END_ATTEMPTS, ids, [times[job] for job in ids], Outcome.CANCELLED)
