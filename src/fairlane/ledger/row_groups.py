"""Aggregation: combines several rows into one value (events, starts, payloads)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fairlane.ledger import rows
from fairlane.ledger.messages import Filter, Settlement
from fairlane.ledger.settle_rows import AFTER
from fairlane.model.event import Event, EventType, Fact, implied, numbered
from fairlane.model.job import Job, Json, fair_user
from fairlane.model.queue_entry import Start
from fairlane.model.state import ENDED, Code, State
from fairlane.model.step import service_of

Cells = Iterable[Any]
"""A row that can be unpacked."""


def events(job: Job, written: Iterable[Cells], after: int) -> list[Event]:
    """Events from rows of (first, body): those that are written, followed by those that the job's
    row implies."""
    told = [event for first, body in written for event in numbered(job.id, first, rows.facts(body))]
    told += numbered(job.id, job.written + 1, implied(job))
    return [event for event in told if event.seq > after]


def starts(found: Iterable[Cells], ranks: dict[str, int]) -> list[Start]:
    """Starts from rows of (lane, tier, tenant, user, key, started_at, id): the last two starts of
    every user at every service and tier."""
    latest: dict[tuple[str, int, str], list[tuple[int, str]]] = {}
    for lane, tier, tenant, user, key, at, job in found:
        if tier in ranks:
            who = (service_of(lane), ranks[tier], fair_user(tenant, user, key))
            latest.setdefault(who, []).append((at, job))
    return [Start(*who, at, job) for who, many in latest.items() for at, job in sorted(many)[-2:]]


PAYLOAD = """
SELECT coalesce(jobs.input, (SELECT input FROM inputs WHERE job = jobs.id)),
    coalesce(parent.input, (SELECT input FROM inputs WHERE job = jobs.parent)),
    jobs.cell, jobs.plan, jobs.step, jobs.attempt, jobs.output, jobs.metrics
FROM jobs LEFT JOIN jobs parent ON parent.id = jobs.parent
WHERE jobs.id = {}
"""


def payload(job: Cells, finished: Iterable[Sequence[Any]]) -> tuple[Json, dict[str, Json]]:
    """Input and context, from the job's `PAYLOAD` columns and the rows of its finished steps."""
    own, shared, cell, plan, step, attempt, output, metrics = job
    context: dict[str, Json] = {}
    for each in finished:
        context.update(rows.step_context(*each))
    if output is not None:
        last = rows.plan(plan)[step - 1]
        context.update(rows.step_context(step - 1, last.service, output, metrics, attempt))
    return rows.loads(own) if own is not None else rows.cell_input(shared, cell), context


def running_in(found: Iterable[Cells]) -> Counter[tuple[str, str | None]]:
    """Running jobs by service and region, from rows of (lane, region, count)."""
    counts: Counter[tuple[str, str | None]] = Counter()
    for lane, region, n in found:
        counts[service_of(lane), region] += n
    return counts


class Ending(NamedTuple):
    """How a fan-out ends with its last cell."""

    state: State
    code: Code | None
    message: str | None
    fact: Fact


def ending(cells: int, bad: int, now: int) -> Ending:
    if not bad:
        return Ending(State.COMPLETED, None, None, Fact(EventType.JOB_COMPLETE, now, {}))
    message = f"{bad} of {cells} executions did not complete"
    fact = Fact(EventType.JOB_FAILED, now, {"code": Code.CELLS_FAILED, "cells": bad})
    return Ending(State.FAILED, Code.CELLS_FAILED, message, fact)


class EndedCells(NamedTuple):
    """Cells of one parent that end in one transaction: how many, whether one of them failed, and
    the job that stands for them in the outcome."""

    parent: str
    number: int
    failed: bool
    now: int
    job: str


def ended_cells(ends: Iterable[tuple[str | None, str, State, int]]) -> list[EndedCells]:
    """From (parent, job, state, now) of jobs that have ended, by parent in the order of locks."""
    found: dict[str, EndedCells] = {}
    for parent, job, state, now in ends:
        if parent is not None:
            before = found.get(parent, EndedCells(parent, number=0, failed=False, now=now, job=job))
            found[parent] = EndedCells(
                parent,
                before.number + 1,
                before.failed or state in (State.FAILED, State.DEAD),
                max(before.now, now),
                job,
            )
    return [found[parent] for parent in sorted(found)]


def settled_cells(winners: Iterable[Settlement]) -> list[EndedCells]:
    """The cells that have ended with these settlements."""
    return ended_cells(
        (item.lease.parent, item.lease.job, AFTER[item.move], item.now)
        for item in winners
        if item.lease.parent is not None and AFTER[item.move] in ENDED
    )


class ParentNews(NamedTuple):
    """What the end of cells means for their parent."""

    ended: str | None = None
    stopping: str | None = None


NO_NEWS = ParentNews()


def fate(found: Iterable[Cells], owner: str | None) -> str | None:
    """How a job ended, from rows of (scope, status). A scope is `tenant/key`; neither part has a
    slash."""
    for scope, status in found:
        if owner in (None, scope, scope.partition("/")[0]):
            told: str | None = status
            return told
    return None


LAST_FAULT = (
    "EXISTS (SELECT 1 FROM attempts WHERE attempts.job = jobs.id AND attempts.fence = jobs.fence "
    "AND attempts.fault = {})"
)


def where_it_is(wanted: Filter) -> list[tuple[str, object]]:
    """Conditions on the tier, model, service and region of a job, and on how and when it ended.
    Each has one value; `{}` is its parameter."""
    code = wanted.error_code
    found: list[tuple[str, object]] = []
    if wanted.tier is not None:
        found.append(("tier = {}", wanted.tier))
    if wanted.model is not None:
        found.append(("model = {}", wanted.model))
    if wanted.service is not None:
        begin = f"{wanted.service}|"
        found.append((f"substr(lane, 1, {len(begin)}) = {{}}", begin))
    if wanted.region is not None:
        found.append(("region = {}", wanted.region))
    if code is not None:
        found.append(("error_code = {}" if code.isupper() else LAST_FAULT, code))
    if wanted.ended_from is not None:
        found.append(("finished_at >= {}", wanted.ended_from))
    if wanted.ended_to is not None:
        found.append(("finished_at < {}", wanted.ended_to))
    return found
