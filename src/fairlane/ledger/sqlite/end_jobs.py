"""Ends living jobs by a request, in SQLite: a cancel, or the stop of a fan-out after a failed
cell."""

from __future__ import annotations

from collections.abc import Container, Sequence

from fairlane.ledger.job_columns import JOB, read_job
from fairlane.ledger.messages import Ended
from fairlane.ledger.requested_end import STOPPED, RequestedEnd
from fairlane.ledger.requests import StopRequest
from fairlane.ledger.row_groups import ended_cells
from fairlane.ledger.sqlite.credits import refund
from fairlane.ledger.sqlite.events import find, write_all
from fairlane.ledger.sqlite.fanout import cells_ended
from fairlane.ledger.sqlite.slots import keep_until
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.attempt import Outcome
from fairlane.model.fanout import OnCellFailure
from fairlane.model.job import Job, fair_user
from fairlane.model.lease import Slot

END = """
UPDATE jobs SET state = ?, rev = rev + 1, finished_at = ?, token = NULL, lease_until = NULL,
    deadline = NULL, give_up_at = NULL, waited = ?, cells_left = 0, error_code = ?,
    error_message = ?, on_cell_failure = replace(on_cell_failure, 'stopping', 'stop')
WHERE id = ?
"""
CELLS = f"SELECT {JOB} FROM jobs WHERE parent = ? ORDER BY id"
LIVING = f"SELECT {JOB} FROM jobs WHERE parent = ? AND finished_at IS NULL ORDER BY id"


def end_jobs(
    tx: SqliteTransaction, jobs: Sequence[Job], now: int, strict: Container[str], end: RequestedEnd
) -> list[Ended]:
    """End these living jobs at once. The slots of a running call stay taken until its deadline if
    its service is strict, otherwise until its lease ends."""
    times = write_all(tx, [(job, [end.fact(now)]) for job in jobs])
    ended: list[Ended] = []
    for job in jobs:
        kept: tuple[Slot, ...] = ()
        if job.token is not None:
            _end_attempt(tx, job, times[job.id])
            until = job.deadline if job.current.service in strict else job.lease_until
            kept = keep_until(tx, job.token, until or now)
        elif not job.fan_out:
            tx.tally.queued -= 1
        if not job.fan_out:
            tx.tally.changed(fair_user(job.tenant, job.user, job.key), -1)
        tx.touched.append(job.id)
        ended.append(Ended(job.id, job.rev + 1, job.token, kept))
    tx.executemany(
        END,
        [
            (
                end.state,
                times[job.id],
                job.waited_until(times[job.id]),
                end.code,
                end.message,
                job.id,
            )
            for job in jobs
        ],
    )
    for job in jobs:
        if end.refunds(job):
            refund(tx, job.id, now)
    return ended


def stop_cells(tx: SqliteTransaction, items: Sequence[StopRequest]) -> list[list[Ended]]:
    """End the living cells of parents that are marked to be stopped, and with them the parents."""
    return [_stop_cells(tx, item) for item in items]


def _stop_cells(tx: SqliteTransaction, item: StopRequest) -> list[Ended]:
    parent = find(tx, item.parent)
    if parent is None or parent.on_cell_failure is not OnCellFailure.STOPPING:
        return []
    living = [read_job(row) for row in tx.execute(LIVING, (parent.id,)).fetchall()]
    ended = end_jobs(tx, living, item.now, item.strict, STOPPED)
    for cells in ended_cells((parent.id, job.id, STOPPED.state, item.now) for job in living):
        cells_ended(tx, cells)
    return ended


def _end_attempt(tx: SqliteTransaction, job: Job, now: int) -> None:
    tx.execute(
        "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
        (
            job.id,
            job.fence,
            job.token,
            job.step,
            job.attempt,
            job.worker,
            job.region,
            job.started_at,
            now,
            Outcome.CANCELLED,
        ),
    )
