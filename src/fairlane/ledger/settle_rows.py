"""Row values of a settlement: what is written when an attempt ends."""

from __future__ import annotations

from typing import Any

from fairlane.ledger.messages import Settlement
from fairlane.ledger.rows import MAX_INLINE_BYTES
from fairlane.model.event import EventType, Fact, place, started
from fairlane.model.lease import Lease
from fairlane.model.state import MOVES, Move, State

AFTER = {move: to[State.RUNNING] for move, to in MOVES.items() if State.RUNNING in to}
"""The state that each way of settling leads to."""


def fits(item: Settlement) -> bool:
    """Whether the output of the last step is stored in the job's row."""
    return len(item.output or "") + len(item.metrics or "") <= MAX_INLINE_BYTES


def unwritten(lease: Lease) -> list[Fact]:
    """The events that the job's row implies since events were last written."""
    where = place(lease.service, lease.step, len(lease.plan))
    facts = [started(lease.started_at, where, lease.attempt, lease.worker, lease.region)]
    if lease.seq - lease.written > 1:
        facts.insert(0, Fact(EventType.WAITING, lease.queued_at, where))
    return facts


def attempt_row(item: Settlement) -> tuple[Any, ...]:
    lease = item.lease
    return (
        lease.job,
        lease.fence,
        lease.token,
        lease.step,
        lease.attempt,
        lease.worker,
        lease.region,
        lease.started_at,
        item.now,
        item.outcome,
        item.fault,
        item.message,
    )


def step_row(item: Settlement) -> tuple[Any, ...]:
    lease = item.lease
    return (
        lease.job,
        lease.step,
        lease.service,
        item.output,
        item.metrics,
        lease.attempt,
        item.now,
    )


def discarded_row(item: Settlement) -> tuple[Any, ...]:
    """The output of a step that was rejected and runs again."""
    return (item.lease.job, item.step)


def complete_row(item: Settlement) -> tuple[Any, ...]:
    lease = item.lease
    if not fits(item):
        return (item.now, None, None, lease.job, lease.token)
    return (item.now, item.output, item.metrics, lease.job, lease.token)


def end_row(item: Settlement, seq: int) -> tuple[Any, ...]:
    lease, error = item.lease, item.error
    code, message = (error.code, error.message) if error is not None else (None, None)
    step, attempt = (lease.step, lease.attempt) if item.step is None else (item.step, item.attempt)
    return (
        AFTER[item.move],
        seq,
        item.now,
        step,
        attempt,
        code,
        message,
        item.lease_until,
        lease.job,
        lease.token,
    )


def requeue_row(item: Settlement, seq: int) -> tuple[Any, ...]:
    lease = item.lease
    step = lease.step if item.step is None else item.step
    return (
        seq,
        step + 1 if item.move is Move.ADVANCE else step,
        item.lane,
        item.attempt,
        item.timeout,
        item.ready_at,
        item.give_up_at,
        item.band,
        item.lease_until,
        lease.job,
        lease.token,
    )
