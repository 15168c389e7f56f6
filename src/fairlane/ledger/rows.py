"""Rows to nouns, for every ledger that stores them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import orjson

from fairlane.model.attempt import Attempt, Fault, Outcome
from fairlane.model.construct import maker
from fairlane.model.event import EventType, Fact
from fairlane.model.job import Band, Error, Job, Json, Progress, fair_user
from fairlane.model.lease import Lease
from fairlane.model.state import Code, State
from fairlane.model.step import Plan, Step, attempts_name, context_name

JOB = (
    "id, tenant, key, user, name, state, plan, step, model, duration, tier, level, promoted_at, "
    "band, paid_at, rev, seq, written, attempt, timeout, lane, token, fence, worker, region, "
    "lease_until, deadline, started_at, waited, ready_at, created_at, finished_at, error_code, "
    "error_message, progress, parent, cell, cells, cells_left, tags, callback, trace"
)


NAMES = JOB.split(", ")
STATE, PLAN, BAND, CODE = map(NAMES.index, ("state", "plan", "band", "error_code"))
PROGRESS, CELL, TAGS = (NAMES.index(name) - 1 for name in ("progress", "cell", "tags"))
"""Where they stand; the last three when code and message have become one."""

STATES, BANDS = {str(state): state for state in State}, tuple(Band)
new_job = maker(Job)

MAX_INLINE_BYTES = 4096
"""Longer inputs and outputs stand in tables of their own."""


def job(row: Sequence[Any]) -> Job:
    values = list(row)
    code, message = values[CODE : CODE + 2]
    values[CODE : CODE + 2] = [Error(Code(code), message or "") if code else None]
    values[STATE], values[BAND] = STATES[values[STATE]], BANDS[values[BAND]]
    values[PLAN] = plan(values[PLAN])
    tags, cell, progress = values[TAGS], values[CELL], values[PROGRESS]
    values[TAGS] = tuple(loads(tags)) if tags else ()
    if cell:
        values[CELL] = loads(cell)
    if progress:
        values[PROGRESS] = Progress(*loads(progress))
    return new_job(tuple(values))


def lease(held: Job) -> Lease:
    """The lease on a running job, without what only its worker needs: input, context and cost."""
    return Lease(
        job=held.id,
        token=held.token or "",
        fence=held.fence,
        rev=held.rev,
        name=held.name,
        plan=held.plan,
        step=held.step,
        attempt=held.attempt,
        input=None,
        context={},
        tenant=held.tenant,
        user=fair_user(held.tenant, held.user, held.key),
        tier=held.tier,
        level=held.level,
        model=held.model,
        region=held.region,
        worker=held.worker or "",
        cost=0,
        started_at=held.started_at or 0,
        lease_until=held.lease_until or 0,
        deadline=held.deadline or 0,
        queued_at=held.created_at,
        waited=held.waited,
        seq=held.seq,
        written=held.written,
        lane=held.lane,
        band=held.band,
        paid_at=held.paid_at,
        parent=held.parent,
        trace=held.trace,
    )


@lru_cache(maxsize=4096)
def plan(text: str) -> Plan:
    """Most jobs share a few plans."""
    return tuple(Step.from_list(values) for values in orjson.loads(text))


@lru_cache(maxsize=4096)
def plan_text(steps: Plan) -> str:
    return dumps([step.as_list() for step in steps])


def cell_input(shared: str, cell: str) -> Json:
    """What a cell is given: its parent's input, with its own values over it."""
    return {**(loads(shared) or {}), **loads(cell)}


def attempt(row: Sequence[Any]) -> Attempt:
    job, fence, step, number, worker, region, started_at, ended_at, outcome, fault, message = row
    how, why = Outcome(outcome), Fault(fault) if fault else None
    return Attempt(
        job, fence, step, number, worker, region, started_at, ended_at, how, why, message
    )


def facts_text(facts: Iterable[Fact]) -> str:
    return dumps([[fact.type, fact.at, fact.data] for fact in facts])


def facts(text: str) -> list[Fact]:
    return [Fact(EventType(kind), at, data) for kind, at, data in orjson.loads(text)]


def dumps(value: Json) -> str:
    return orjson.dumps(value).decode()


def loads(text: str) -> Json:
    return orjson.loads(text)


def step_context(
    step: int, service: str, output: str | None, metrics: str | None, attempts: int
) -> dict[str, Json]:
    return {
        context_name(step, service): {
            "status": "SUCCESS",
            "data": loads(output) if output else None,
            "metrics": loads(metrics) if metrics else {},
        },
        attempts_name(step, service): attempts,
    }
