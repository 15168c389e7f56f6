"""Row values of a reopened job: its place in the queue after a resume or a replay."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.job import Job
from fairlane.model.state import Move, State, moved

WORDS = {Move.REOPEN: "a retry of failed executions"}
"""Moves that an error message names in other words."""


def may_reopen(job: Job, move: Move) -> bool:
    """Whether the job, or the failed cells of a fan-out, can be queued again. Failed cells can be
    retried (`REOPEN`) while their fan-out runs and after it has ended, unless it was cancelled."""
    if move is Move.REOPEN:
        return job.fan_out and job.state is not State.CANCELLED
    if move is Move.RESUME and job.error is not None and not job.error.resumable:
        return False
    return moved(job.state, move) is not None


class QueuePlace(NamedTuple):
    attempt: int
    timeout: int
    give_up_at: int | None
    lane: str


def place(job: Job, move: Move, now: int) -> QueuePlace:
    """The job's new place. Resume keeps the attempts used so far unless they are used up; replay
    starts at zero."""
    step = job.current
    fresh = move is Move.REPLAY or job.attempt >= step.max_attempts
    return QueuePlace(
        attempt=0 if fresh else job.attempt,
        timeout=step.timeout if fresh else job.timeout,
        give_up_at=now + step.max_wait if step.max_wait else None,
        lane=step.lane,
    )
