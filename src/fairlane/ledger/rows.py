"""Row mapping: converts rows into model objects, for both stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import orjson

from fairlane.model.attempt import Attempt, Fault, Outcome
from fairlane.model.event import EventType, Fact
from fairlane.model.job import Job, Json, fair_user
from fairlane.model.lease import Lease
from fairlane.model.step import Plan, Step, attempts_name, context_name

MAX_INLINE_BYTES = 4096
"""Longer inputs and outputs are stored in tables of their own."""


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
    """The parsed plan. Cached, because most jobs share a few plans."""
    return tuple(Step.from_list(values) for values in orjson.loads(text))


@lru_cache(maxsize=4096)
def plan_text(steps: Plan) -> str:
    return dumps([step.as_list() for step in steps])


def cell_input(shared: str, cell: str) -> Json:
    """The input of a cell: its parent's input, overridden by the cell's own values."""
    return {**(loads(shared) or {}), **loads(cell)}


def attempt(row: Sequence[Any]) -> Attempt:
    job, fence, step, number, worker, region, started_at, ended_at, *end = row
    outcome, fault, message, token = end
    how, why = Outcome(outcome), Fault(fault) if fault else None
    return Attempt(
        job, fence, step, number, worker, region, started_at, ended_at, how, why, message, token
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
