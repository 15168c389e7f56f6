"""Lease rows: the lease of a confirmed proposal, or the reason why it was refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlane.ledger.messages import Confirmation, Unconfirmed
from fairlane.ledger.rows import plan
from fairlane.model.construct import maker
from fairlane.model.job import Band, Job, Json
from fairlane.model.lease import Lease, service_slot
from fairlane.model.state import Move, moved

COLUMNS = (
    "token, id, fence, rev, name, plan, step, attempt, input, tenant, tier, level, model, region, "
    "worker, started_at, lease_until, deadline, created_at, waited, seq, written, lane, band, "
    "paid_at, parent, trace"
)

BANDS = tuple(Band)
lease = maker(Lease)


def granted(item: Confirmation, row: Iterable[Any], sent: Json, context: dict[str, Any]) -> Lease:
    (token, job, fence, rev, name, plan_text, step, attempt, _, *more) = row
    tenant, tier, level, model, region, worker, *times, lane, band, paid_at, parent, trace = more
    started_at, lease_until, deadline, created_at, waited, seq, written = times
    values = (
        job,
        token,
        fence,
        rev,
        name,
        plan(plan_text),
        step,
        attempt,
        sent,
        context,
        tenant,
        item.user,
        tier,
        level,
        model,
        region,
        worker,
        item.cost,
        started_at,
        lease_until,
        deadline,
        created_at,
        waited,
        seq,
        written,
        lane,
        BANDS[band],
        paid_at,
        parent,
        trace,
        service_slot(item.slots) if model else 0,
    )
    return lease(values)


def wrong_epoch_or_pools(item: Confirmation, epoch: str) -> Unconfirmed | None:
    if item.epoch != epoch:
        return Unconfirmed("another epoch")
    if item.slots or item.pools:
        named = sorted(slot.pool for slot in item.slots)
        if named != sorted(item.pools):
            return Unconfirmed("not the pools it needs", tuple(item.pools))
    return None


def reason(item: Confirmation, job: Job | None) -> str:
    if job is None:
        return "unknown job"
    if moved(job.state, Move.CLAIM) is None or job.rev != item.rev:
        return f"job is {job.state} at rev {job.rev}"
    if job.ready_at > item.now:
        return "not ready yet"
    return "another lane, tier or user"
