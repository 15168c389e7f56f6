"""From the row of a job that has just started to the lease its worker gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.ledger.rows import loads, plan
from fairlane.ledger.shapes import Confirmation
from fairlane.model.job import Band
from fairlane.model.lease import Lease
from fairlane.model.make import maker

COLUMNS = (
    "token, id, fence, rev, name, plan, step, attempt, input, tenant, tier, level, model, region, "
    "worker, started_at, lease_until, deadline, created_at, waited, seq, written, lane, band, "
    "paid_at, parent, trace"
)

BANDS = tuple(Band)
lease = maker(Lease)


def granted(item: Confirmation, row: Sequence[Any], text: str, context: dict[str, Any]) -> Lease:
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
        loads(text),
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
    )
    return lease(values)
