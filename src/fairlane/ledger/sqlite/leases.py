"""Leases and waiting jobs in SQLite: renew, expire, revoke, promote, give up."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger import rows
from fairlane.ledger.job_columns import JOB, read_job
from fairlane.ledger.messages import Renewal
from fairlane.ledger.requests import (
    ProgressReport,
    Promotion,
    RenewRequest,
    StartMove,
    UnconfirmedProposal,
)
from fairlane.ledger.row_groups import ended_cells
from fairlane.ledger.sqlite.credits import refund
from fairlane.ledger.sqlite.events import find, write_events
from fairlane.ledger.sqlite.fanout import cells_ended
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.event import EventType, Fact
from fairlane.model.job import Band, Job, fair_user
from fairlane.model.service import is_rate_pool
from fairlane.model.state import Code, Move, State, moved


def renew(tx: SqliteTransaction, items: Sequence[RenewRequest]) -> list[Renewal]:
    return [_renew(tx, item) for item in items]


def _renew(tx: SqliteTransaction, item: RenewRequest) -> Renewal:
    lost: list[str] = []
    cancelled: list[str] = []
    for job, token in item.tokens:
        held = tx.execute(
            "UPDATE jobs SET lease_until = max(lease_until, min(?, deadline)) "
            "WHERE id = ? AND token = ? AND lease_until > ?",
            (item.until, job, token, item.now),
        ).rowcount
        if not held:
            row = tx.execute("SELECT state FROM jobs WHERE id = ?", (job,)).fetchone()
            ended = row is not None and row[0] == State.CANCELLED
            (cancelled if ended else lost).append(job)
    return Renewal(lost, cancelled)


PROLONG = """
UPDATE jobs SET lease_until = CASE
    WHEN deadline > ?1 THEN max(lease_until, min(?1 + lease, deadline))
    WHEN lease_until <= deadline THEN ?1 + lease
    ELSE lease_until END
WHERE token IS NOT NULL
"""


def prolong(tx: SqliteTransaction, items: Sequence[int]) -> list[None]:
    """Extend every lease from now on. A lease past its deadline is extended only once: its end is
    then after its deadline."""
    for now in items:
        tx.execute(PROLONG, (now,))
    return [None] * len(items)


def progress(tx: SqliteTransaction, items: Sequence[ProgressReport]) -> list[State | None]:
    """None if the token holds, otherwise the job's state; a missing job counts as cancelled."""
    outcomes: list[State | None] = []
    for item in items:
        held = tx.execute(
            "UPDATE jobs SET progress = ? WHERE id = ? AND token = ?",
            (rows.dumps(list(item.progress)), item.job, item.token),
        ).rowcount
        job = None if held else find(tx, item.job)
        outcomes.append(None if held else job.state if job else State.CANCELLED)
    return outcomes


def move_start(tx: SqliteTransaction, items: Sequence[StartMove]) -> list[None]:
    tx.executemany(
        "UPDATE jobs SET deadline = deadline + ?3 - started_at, started_at = ?3 "
        "WHERE id = ?1 AND token = ?2 AND started_at < ?3",
        items,
    )
    return [None] * len(items)


def free_slots(tx: SqliteTransaction, items: Sequence[tuple[int, int]]) -> list[list[str]]:
    """Free slots whose time is over, as (now, limit). Returns the tokens that were kept beyond
    their lease; a rate's slot says nothing about its lease."""
    freed = []
    for now, limit in items:
        found = tx.execute(
            "SELECT pool, n, token FROM slots WHERE until <= ? LIMIT ?", (now, limit)
        ).fetchall()
        tx.executemany("DELETE FROM slots WHERE pool = ? AND n = ? AND token = ?", found)
        freed.append([token for pool, _, token in found if not is_rate_pool(pool)])
    return freed


def revoke(tx: SqliteTransaction, items: Sequence[UnconfirmedProposal]) -> list[bool]:
    """True if the job runs under that token. Otherwise its rev is raised, so that a late confirm
    fails."""
    runs = []
    for item in items:
        job = find(tx, item.job)
        held = job is not None and job.token == item.token
        runs.append(held)
        if job is not None and not held:
            if job.state is State.QUEUED and job.rev == item.rev:
                tx.execute("UPDATE jobs SET rev = rev + 1 WHERE id = ?", (item.job,))
            tx.touched.append(item.job)
    return runs


def promote(tx: SqliteTransaction, items: Sequence[Promotion]) -> list[str | None]:
    """The level each job had before, or None if there was nothing to announce."""
    outcomes: list[str | None] = []
    for item in items:
        job = find(tx, item.job)
        if job is None or moved(job.state, Move.PROMOTE) is None or not item.is_news(job.level):
            outcomes.append(None)
            continue
        fact = Fact(EventType.JOB_PROMOTED, item.now, {"old": job.level, "new": item.level})
        at = write_events(tx, job, [fact])
        tx.execute(
            "UPDATE jobs SET level = ?, promoted_at = ? WHERE id = ?",
            (item.level, at, item.job),
        )
        outcomes.append(job.level)
    return outcomes


def give_up(tx: SqliteTransaction, items: Sequence[tuple[int, int]]) -> list[list[Job]]:
    """Fail queued jobs past their longest wait, as (now, limit). They can be resumed."""
    return [_give_up(tx, now, limit) for now, limit in items]


def _give_up(tx: SqliteTransaction, now: int, limit: int) -> list[Job]:
    found = tx.execute(
        f"SELECT {JOB} FROM jobs WHERE give_up_at <= ? AND state = 'queued' LIMIT ?",
        (now, limit),
    ).fetchall()
    jobs = [read_job(row) for row in found]
    for job in jobs:
        code = Code.RESOURCE_EXHAUSTED
        at = write_events(tx, job, [Fact(EventType.JOB_FAILED, now, {"code": code})])
        tx.execute(
            "UPDATE jobs SET state = 'failed', rev = rev + 1, finished_at = ?, give_up_at = NULL, "
            "waited = ?, error_code = ?, error_message = ? WHERE id = ?",
            (
                at,
                job.waited_until(now),
                code,
                f"no capacity at {job.current.service} in time",
                job.id,
            ),
        )
        if job.band is Band.SKIP and job.delivered == 0:
            refund(tx, job.id, now)
        tx.tally.changed(fair_user(job.tenant, job.user, job.key), -1)
        tx.touched.append(job.id)
    for cells in ended_cells((job.parent, job.id, State.FAILED, now) for job in jobs):
        cells_ended(tx, cells)
    tx.tally.queued -= len(jobs)
    return jobs


def return_attempts(tx: SqliteTransaction, items: Sequence[tuple[str, int, int]]) -> list[None]:
    """Give a queued job its last attempt back."""
    tx.executemany(
        "UPDATE jobs SET attempt = attempt - 1 "
        "WHERE id = ? AND state = 'queued' AND step = ? AND attempt = ?",
        items,
    )
    return [None] * len(items)


def change_lanes(tx: SqliteTransaction, items: Sequence[tuple[str, int, str]]) -> list[None]:
    """Give queued jobs another lane."""
    tx.executemany(
        "UPDATE jobs SET lane = ?, rev = rev + 1 WHERE id = ? AND rev = ? AND state = 'queued'",
        [(lane, job, rev) for job, rev, lane in items],
    )
    return [None] * len(items)
