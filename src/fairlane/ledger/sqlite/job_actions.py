"""Cancel, resume, replay and skip: guarded state transitions. Each checks the state it starts from
and is idempotent."""

from __future__ import annotations

from collections.abc import Container, Sequence

from fairlane.errors import FairlaneError, InvalidInput, NotFound, WrongState
from fairlane.ledger.credit_account_names import SKIPS, account_of, skip_operation
from fairlane.ledger.job_columns import read_job
from fairlane.ledger.messages import Ended, Reopened, Request, Skipped
from fairlane.ledger.reopen_rows import WORDS, may_reopen, place
from fairlane.ledger.requested_end import CANCELLED
from fairlane.ledger.requests import CancelRequest, ReopenRequest, SkipCommand
from fairlane.ledger.row_groups import ended_cells
from fairlane.ledger.sqlite.credits import balance, booked, transfer
from fairlane.ledger.sqlite.end_jobs import CELLS, end_jobs
from fairlane.ledger.sqlite.events import find, write_all, write_events
from fairlane.ledger.sqlite.fanout import cells_ended, cells_reopened
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.event import EventType, Fact
from fairlane.model.job import Band, Job, fair_user
from fairlane.model.state import LIVE, Move, State, moved
from fairlane.policy.quotas import Quota, Usage, admit


# --- cancel --------------------------------------------------------------------------------------
def cancel(
    tx: SqliteTransaction, items: Sequence[CancelRequest]
) -> list[list[Ended] | FairlaneError]:
    return [_cancel(tx, *item) for item in items]


def _cancel(
    tx: SqliteTransaction, request: Request, strict: Container[str]
) -> list[Ended] | FairlaneError:
    job = _find(tx, request)
    if job is None:
        return NotFound("job", request.job)
    if _seen(tx, request):
        return []
    if moved(job.state, Move.CANCEL) is None:
        return WrongState(job.id, job.state, Move.CANCEL)
    living = [cell for cell in _cells(tx, job) if cell.state in LIVE]
    ended = end_jobs(tx, [*living, job], request.now, strict, CANCELLED)
    for cells in ended_cells([(job.parent, job.id, State.CANCELLED, request.now)]):
        cells_ended(tx, cells)
    _mark(tx, request)
    return ended


# --- resume and replay ---------------------------------------------------------------------------
def reopen(tx: SqliteTransaction, items: Sequence[ReopenRequest]) -> list[Reopened | FairlaneError]:
    return [_reopen(tx, *item) for item in items]


def _reopen(
    tx: SqliteTransaction, request: Request, move: Move, quota: Quota | None
) -> Reopened | FairlaneError:
    job = _find(tx, request)
    if job is None:
        return NotFound("job", request.job)
    if _seen(tx, request):
        return Reopened([], again=True)
    if not may_reopen(job, move):
        return WrongState(job.id, job.state, WORDS.get(move, move))
    jobs = [job] if not job.fan_out else _failed_cells(tx, job)
    if not jobs:
        return WrongState(job.id, job.state, WORDS[Move.REOPEN])
    if quota is not None:
        usage = Usage(pending=tx.tally.pending(_who(job)), waiting=tx.tally.queued)
        refusal = admit(_own(tx, job, quota), usage, len(jobs))
        if refusal is not None:
            return refusal
    if job.parent is not None and _parent_cancelled(tx, job.parent):
        return WrongState(job.parent, State.CANCELLED, f"{move} of a cell")
    _back_in_line(tx, jobs, Move.REPLAY if move is Move.REOPEN else move, request.now)
    _mark(tx, request)
    return Reopened([each.id for each in jobs], again=False)


def _own(tx: SqliteTransaction, job: Job, quota: Quota) -> Quota:
    """The tier's quota, unless this user has a limit of their own. The hourly rate is not checked:
    the job was counted when it was submitted."""
    row = tx.execute(
        "SELECT pending FROM quotas WHERE tenant = ? AND user = ?", (job.tenant, job.user)
    ).fetchone()
    pending = row[0] if row is not None and row[0] is not None else quota.pending
    return quota._replace(pending=pending, per_hour=0)


def _failed_cells(tx: SqliteTransaction, job: Job) -> list[Job]:
    return [cell for cell in _cells(tx, job) if cell.state in (State.FAILED, State.DEAD)]


def _parent_cancelled(tx: SqliteTransaction, parent: str) -> bool:
    row = tx.execute("SELECT state FROM jobs WHERE id = ?", (parent,)).fetchone()
    return row is not None and row[0] == State.CANCELLED


BACK_IN_LINE = """
UPDATE jobs SET state = 'queued', rev = rev + 1, finished_at = NULL, ready_at = ?, attempt = ?,
    timeout = ?, give_up_at = ?, lane = ?, error_code = NULL, error_message = NULL, progress = NULL
WHERE id = ?
"""


def _back_in_line(tx: SqliteTransaction, jobs: Sequence[Job], move: Move, now: int) -> None:
    """Queue one job, or cells of one parent, again."""
    fact = Fact(EventType.JOB_REOPENED, now, {"how": str(move)})
    times = write_all(tx, [(job, [fact]) for job in jobs])
    tx.executemany(
        BACK_IN_LINE,
        [(times[job.id], *place(job, move, times[job.id]), job.id) for job in jobs],
    )
    tx.executemany(
        "DELETE FROM steps WHERE job = ? AND step >= ?", [(job.id, job.step) for job in jobs]
    )
    tx.tally.queued += len(jobs)
    for job in jobs:
        tx.tally.changed(_who(job), 1)
        tx.touched.append(job.id)
    if jobs and jobs[0].parent is not None:
        cells_reopened(tx, jobs[0].parent, now, len(jobs))


# --- skip ----------------------------------------------------------------------------------------
def skip(tx: SqliteTransaction, items: Sequence[SkipCommand]) -> list[Skipped | FairlaneError]:
    return [_skip(tx, *item) for item in items]


def _skip(tx: SqliteTransaction, request: Request, price: int) -> Skipped | FairlaneError:
    job = _find(tx, request)
    if job is None:
        return NotFound("job", request.job)
    if job.user is None:
        return InvalidInput("a job without a user cannot be charged; submit it with a user_id")
    account = account_of(job.tenant, job.user)
    charge = skip_operation(job.id, request.op)
    paid = booked(tx, charge, account)
    if paid is not None or job.band is Band.SKIP:
        return Skipped(-(paid or 0), balance(tx, account), again=True)
    if moved(job.state, Move.SKIP) is None:
        return WrongState(job.id, job.state, Move.SKIP)
    if job.fan_out:
        return InvalidInput("skip the executions of a fan-out one by one")
    refusal = transfer(tx, charge, account, SKIPS, price, request.now, f"skip of {job.id}")
    if refusal is not None:
        return refusal
    at = write_events(tx, job, [Fact(EventType.JOB_SKIPPED, request.now, {"price": price})])
    tx.execute(
        "UPDATE jobs SET band = ?, paid_at = ?, charge = ?, rev = rev + 1, last_op = ? "
        "WHERE id = ?",
        (Band.SKIP, at, charge, request.op, job.id),
    )
    tx.touched.append(job.id)
    return Skipped(price, balance(tx, account), again=False)


# --- shared --------------------------------------------------------------------------------------
def _find(tx: SqliteTransaction, request: Request) -> Job | None:
    """The job, if the tenant owns it. Jobs of other tenants and missing jobs look the same."""
    job = find(tx, request.job)
    if job is None or request.tenant not in (None, job.tenant):
        return None
    return job


def _cells(tx: SqliteTransaction, job: Job) -> list[Job]:
    if not job.fan_out:
        return []
    return [read_job(row) for row in tx.execute(CELLS, (job.id,)).fetchall()]


def _seen(tx: SqliteTransaction, request: Request) -> bool:
    row = tx.execute("SELECT last_op FROM jobs WHERE id = ?", (request.job,)).fetchone()
    return row is not None and row[0] == request.op


def _mark(tx: SqliteTransaction, request: Request) -> None:
    tx.execute("UPDATE jobs SET last_op = ? WHERE id = ?", (request.op, request.job))


def _who(job: Job) -> str:
    return fair_user(job.tenant, job.user, job.key)
