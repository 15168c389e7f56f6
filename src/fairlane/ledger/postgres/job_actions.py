"""Cancel, resume, replay and skip: guarded state transitions. Each checks the state it starts from
and is idempotent."""

from __future__ import annotations

from collections.abc import Container, Sequence

from fairlane.errors import FairlaneError, InvalidInput, NotFound, WrongState
from fairlane.ledger.credit_account_names import SKIPS, account_of, skip_operation
from fairlane.ledger.job_columns import read_job
from fairlane.ledger.messages import Ended, Reopened, Request, Skipped
from fairlane.ledger.postgres.credits import balance, booked, transfer
from fairlane.ledger.postgres.end_jobs import CELLS, end_jobs
from fairlane.ledger.postgres.events import find, write_all, write_events
from fairlane.ledger.postgres.fanout import cells_ended, cells_reopened
from fairlane.ledger.postgres.job_lists import OLDEST_LIVE, add_to_live_list
from fairlane.ledger.postgres.locks import Held, hold_families, hold_named, hold_owners
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.submit import LINE, hold_queue
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.reopen_rows import WORDS, may_reopen, place
from fairlane.ledger.requested_end import CANCELLED
from fairlane.ledger.requests import CancelRequest, ReopenRequest, SkipCommand
from fairlane.ledger.row_groups import ended_cells
from fairlane.model.event import EventType, Fact
from fairlane.model.job import Band, Job
from fairlane.model.state import LIVE, Move, State, moved
from fairlane.policy.quotas import Quota, Usage, admit


# --- cancel --------------------------------------------------------------------------------------
async def cancel(
    tx: PostgresTransaction, items: Sequence[CancelRequest]
) -> list[list[Ended] | FairlaneError]:
    held = await hold_families(tx, [item.request for item in items])
    return [await _cancel(tx, held, *item) for item in items]


async def _cancel(
    tx: PostgresTransaction, held: Held, request: Request, strict: Container[str]
) -> list[Ended] | FairlaneError:
    job, cells = await _find_with_cells(tx, held, request)
    if job is None:
        return NotFound("job", request.job)
    if await _seen(tx, request):
        return []
    if moved(job.state, Move.CANCEL) is None:
        return WrongState(job.id, job.state, Move.CANCEL)
    living = [cell for cell in cells if cell.state in LIVE]
    ended = await end_jobs(tx, [*living, job], request.now, strict, CANCELLED)
    for group in ended_cells([(job.parent, job.id, State.CANCELLED, request.now)]):
        await cells_ended(tx, group)
    await _mark(tx, request)
    return ended


# --- resume and replay ---------------------------------------------------------------------------
async def reopen(
    tx: PostgresTransaction, items: Sequence[ReopenRequest]
) -> list[Reopened | FairlaneError]:
    await _hold_places(tx, [item for item in items if item.quota is not None])
    held = await hold_families(tx, [item.request for item in items])
    return [await _reopen(tx, held, *item) for item in items]


async def _hold_places(tx: PostgresTransaction, items: Sequence[ReopenRequest]) -> None:
    """Lock these users' job counts until this transaction ends, so that two requests never share
    the last place. Near its limit, lock the whole queue, too."""
    if items:
        await hold_owners(tx, [item.request for item in items])
        await hold_queue(tx, [item.quota for item in items if item.quota is not None])


async def _reopen(
    tx: PostgresTransaction, held: Held, request: Request, move: Move, quota: Quota | None
) -> Reopened | FairlaneError:
    job, cells = await _find_with_cells(tx, held, request)
    if job is None:
        return NotFound("job", request.job)
    if await _seen(tx, request):
        return Reopened([], again=True)
    if not may_reopen(job, move):
        return WrongState(job.id, job.state, WORDS.get(move, move))
    jobs = [job]
    if job.fan_out:
        jobs = [cell for cell in cells if cell.state in (State.FAILED, State.DEAD)]
    if not jobs:
        return WrongState(job.id, job.state, WORDS[Move.REOPEN])
    if quota is not None:
        quota = await _own(tx, job, quota)
        refusal = admit(quota, await _usage(tx, job, quota), len(jobs))
        if refusal is not None:
            return refusal
    if job.parent is not None and await _is_cancelled(tx, job.parent):
        return WrongState(job.parent, State.CANCELLED, f"{move} of a cell")
    await _back_in_line(tx, jobs, Move.REPLAY if move is Move.REOPEN else move, request.now)
    await _mark(tx, request)
    return Reopened([each.id for each in jobs], again=False)


async def _own(tx: PostgresTransaction, job: Job, quota: Quota) -> Quota:
    """The tier's quota, unless this user has a limit of their own. The hourly rate is not checked:
    the job was counted when it was submitted."""
    pending = await tx.fetchval(
        "SELECT pending FROM quotas WHERE tenant = $1 AND username = $2", job.tenant, job.user
    )
    return quota._replace(pending=quota.pending if pending is None else pending, per_hour=0)


PENDING_OF_USER = f"""
SELECT count(*) FROM jobs WHERE tenant = $1 AND username = $2 AND finished_at IS NULL
    AND cells = 0 AND id >= ({OLDEST_LIVE})
"""
PENDING_OF_KEY = f"""
SELECT count(*) FROM jobs WHERE tenant = $1 AND username IS NULL AND key = $2
    AND finished_at IS NULL AND cells = 0 AND id >= ({OLDEST_LIVE})
"""


async def _usage(tx: PostgresTransaction, job: Job, quota: Quota) -> Usage:
    """The usage that the quota limits, counted."""
    pending = waiting = 0
    if quota.pending:
        if job.user is not None:
            pending = await tx.fetchval(PENDING_OF_USER, job.tenant, job.user)
        else:
            pending = await tx.fetchval(PENDING_OF_KEY, job.tenant, job.key)
    if quota.waiting:
        waiting = tx.line + await tx.fetchval(LINE)
    return Usage(pending=pending, waiting=waiting)


async def _is_cancelled(tx: PostgresTransaction, parent: str) -> bool:
    state = await tx.fetchval("SELECT state FROM jobs WHERE id = $1", parent)
    return bool(state == State.CANCELLED)


PLACES = table("id text, attempt bigint, timeout bigint, give_up_at bigint, lane text, at bigint")
BACK_IN_LINE = Statement(f"""
UPDATE jobs SET state = 'queued', rev = rev + 1, finished_at = NULL, ready_at = v.at,
    attempt = v.attempt, timeout = v.timeout, give_up_at = v.give_up_at, lane = v.lane,
    error_code = NULL, error_message = NULL, progress = NULL
FROM {PLACES}
WHERE jobs.id = v.id
""")


REJECTED_OUTPUTS = """
DELETE FROM steps USING jobs
WHERE jobs.id = ANY($1::text[]) AND steps.job = ANY($1::text[]) AND steps.job = jobs.id
    AND steps.step >= jobs.step
"""


async def _back_in_line(tx: PostgresTransaction, jobs: Sequence[Job], move: Move, now: int) -> None:
    """Queue one job, or cells of one parent, again."""
    fact = Fact(EventType.JOB_REOPENED, now, {"how": str(move)})
    times = await write_all(tx, [(job, [fact]) for job in jobs])
    ids = [job.id for job in jobs]
    places = [(job.id, *place(job, move, times[job.id]), times[job.id]) for job in jobs]
    await tx.execute(*BACK_IN_LINE.rows(places))
    await tx.execute(REJECTED_OUTPUTS, ids)
    await add_to_live_list(tx, ids)
    tx.line += len(jobs)
    tx.touched += ids
    parent = jobs[0].parent
    if parent is not None:
        await cells_reopened(tx, parent, now, len(jobs))


# --- skip ----------------------------------------------------------------------------------------
SKIP = Statement("""
UPDATE jobs SET band = :band, paid_at = :paid_at, charge = :charge, rev = rev + 1, last_op = :op
WHERE id = :id
""")


async def skip(
    tx: PostgresTransaction, items: Sequence[SkipCommand]
) -> list[Skipped | FairlaneError]:
    held = await hold_named(tx, [item.request for item in items])
    return [await _skip(tx, held, *item) for item in items]


async def _skip(
    tx: PostgresTransaction, held: Held, request: Request, price: int
) -> Skipped | FairlaneError:
    job = await _find(tx, held, request)
    if job is None:
        return NotFound("job", request.job)
    if job.user is None:
        return InvalidInput("a job without a user cannot be charged; submit it with a user_id")
    account = account_of(job.tenant, job.user)
    charge = skip_operation(job.id, request.op)
    paid = await booked(tx, charge, account)
    if paid is not None or job.band is Band.SKIP:
        return Skipped(-(paid or 0), await balance(tx, account), again=True)
    if moved(job.state, Move.SKIP) is None:
        return WrongState(job.id, job.state, Move.SKIP)
    if job.fan_out:
        return InvalidInput("skip the executions of a fan-out one by one")
    refusal = await transfer(tx, charge, account, SKIPS, price, request.now, f"skip of {job.id}")
    if refusal is not None:
        return refusal
    at = await write_events(tx, job, [Fact(EventType.JOB_SKIPPED, request.now, {"price": price})])
    await tx.execute(*SKIP(band=Band.SKIP, paid_at=at, charge=charge, op=request.op, id=job.id))
    tx.touched.append(job.id)
    return Skipped(price, await balance(tx, account), again=False)


# --- shared --------------------------------------------------------------------------------------
async def _find(tx: PostgresTransaction, held: Held, request: Request) -> Job | None:
    """The job, if the tenant owns it. Jobs of other tenants and missing jobs look the same."""
    job = await find(tx, request.job, lock=False) if request.job in held else None
    if job is None or request.tenant not in (None, job.tenant):
        return None
    return job


async def _find_with_cells(
    tx: PostgresTransaction, held: Held, request: Request
) -> tuple[Job | None, list[Job]]:
    job = await _find(tx, held, request)
    cells = await tx.fetch(CELLS, job.id) if job is not None and job.fan_out else []
    return job, [read_job(tuple(row)) for row in cells]


async def _seen(tx: PostgresTransaction, request: Request) -> bool:
    last = await tx.fetchval("SELECT last_op FROM jobs WHERE id = $1", request.job)
    return bool(last == request.op)


async def _mark(tx: PostgresTransaction, request: Request) -> None:
    await tx.execute("UPDATE jobs SET last_op = $2 WHERE id = $1", request.job, request.op)
