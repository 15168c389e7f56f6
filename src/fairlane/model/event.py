"""Events of a job, numbered from 1 without a gap."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from fairlane.model.job import Job, Json
from fairlane.model.state import State


class EventType(StrEnum):
    WAITING = "WAITING"
    STEP_START = "STEP_START"
    STEP_COMPLETE = "STEP_COMPLETE"
    JOB_PROMOTED = "JOB_PROMOTED"
    JOB_SKIPPED = "JOB_SKIPPED"
    JOB_RETRY = "JOB_RETRY"
    JOB_COMPLETE = "JOB_COMPLETE"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELLED = "JOB_CANCELLED"
    JOB_REOPENED = "JOB_REOPENED"


class Fact(NamedTuple):
    """An event before it has a sequence number."""

    type: EventType
    at: int
    data: dict[str, Json]


class Event(NamedTuple):
    seq: int
    type: EventType
    job: str
    at: int
    data: dict[str, Json]

    @property
    def message(self) -> str:
        if self.type is EventType.WAITING and "cells" in self.data:
            return f"Waiting to run {self.data['cells']} times"
        return MESSAGES[self.type].format_map(_Words(self.data))


MESSAGES = {
    EventType.WAITING: "Waiting for {service} ({step}/{total})",
    EventType.STEP_START: "Running {service} ({step}/{total})",
    EventType.STEP_COMPLETE: "Completed {service} ({step}/{total})",
    EventType.JOB_PROMOTED: "Promoted from {old} to {new}",
    EventType.JOB_SKIPPED: "Moved to the front",
    EventType.JOB_RETRY: "Trying {service} again ({step}/{total})",
    EventType.JOB_COMPLETE: "Completed",
    EventType.JOB_FAILED: "Failed: {code}",
    EventType.JOB_CANCELLED: "Cancelled",
    EventType.JOB_REOPENED: "Back in line",
}


class _Words(dict[str, Json]):
    def __missing__(self, key: str) -> str:
        return "?"


def place(service: str, step: int, total: int) -> dict[str, Json]:
    """The step that an event is about. Steps are counted from 1."""
    return {"service": service, "step": step + 1, "total": total}


def implied(job: Job) -> list[Fact]:
    """The events that the job's row implies and that no event row has stored yet."""
    missing = job.seq - job.written
    if missing <= 0:
        return []
    if job.fan_out:
        return [Fact(EventType.WAITING, job.created_at, {"cells": job.cells})]
    where = place(job.current.service, min(job.step, len(job.plan) - 1), len(job.plan))
    facts = [Fact(EventType.WAITING, job.created_at, where)]
    if job.started_at is not None and job.state in (State.RUNNING, State.COMPLETED):
        facts.append(started(job.started_at, where, job.attempt, job.worker, job.region))
    if job.finished_at is not None and job.state is State.COMPLETED:
        facts.append(Fact(EventType.STEP_COMPLETE, job.finished_at, where))
        facts.append(Fact(EventType.JOB_COMPLETE, job.finished_at, {}))
    return facts[-missing:]


def in_order(facts: Iterable[Fact], after: int = 0) -> list[Fact]:
    """The facts with times that never decrease and are never before `after`. A move reads the time
    before it waits for its transaction, so moves may commit in another order."""
    told: list[Fact] = []
    for fact in facts:
        after = max(after, fact.at)
        told.append(fact._replace(at=after))
    return told


def started(
    at: int, where: dict[str, Json], attempt: int, worker: str | None, region: str | None
) -> Fact:
    data = {**where, "attempt": attempt, "worker": worker}
    if region:
        data["region"] = region
    return Fact(EventType.STEP_START, at, data)


def numbered(job_id: str, first: int, facts: Iterable[Fact]) -> list[Event]:
    return [Event(first + i, f.type, job_id, f.at, f.data) for i, f in enumerate(facts)]
