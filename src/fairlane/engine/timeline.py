"""The timeline of a job: when each step and attempt ran, and why it waited in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from fairlane.engine.queries import JobDetail
from fairlane.model.attempt import Attempt, Fault
from fairlane.model.event import Event, EventType
from fairlane.model.state import State


class SpanKind(StrEnum):
    """`backoff` is the pause before a retry, `unavailable` that pause if the service did not
    answer, `expected` the time in which a waiting job will probably start."""

    WAITING = "waiting"
    BACKOFF = "backoff"
    UNAVAILABLE = "unavailable"
    RUNNING = "running"
    EXPECTED = "expected"


class TimelineSpan(NamedTuple):
    """`until` is None while the span lasts. Times are microseconds."""

    kind: SpanKind
    step: int
    service: str
    attempt: int
    since: int
    until: int | None
    region: str | None = None
    outcome: str | None = None
    note: str | None = None


def timeline(
    detail: JobDetail, tried: Sequence[Attempt], events: Sequence[Event], now: int
) -> list[TimelineSpan]:
    """The spans of a job, in order."""
    job = detail.job
    retries = {
        (event.data.get("step", 1) - 1, event.data.get("attempt")): event
        for event in events
        if event.type is EventType.JOB_RETRY
    }
    reopened = [event.at for event in events if event.type is EventType.JOB_REOPENED]
    found: list[TimelineSpan] = []
    since, retry = job.created_at, None
    for attempt in sorted(tried, key=lambda each: each.fence):
        service = job.plan[attempt.step].service
        began = max([since, *(at for at in reopened if at <= attempt.started_at)])
        place = (attempt.step, service, attempt.number)
        found += _waited(place, began, attempt.started_at, retry)
        found.append(
            TimelineSpan(
                SpanKind.RUNNING,
                *place,
                attempt.started_at,
                attempt.ended_at,
                attempt.region,
                str(attempt.fault or attempt.outcome),
                attempt.message,
            )
        )
        since, retry = attempt.ended_at, retries.get((attempt.step, attempt.number))
    return [*found, *_present(detail, max([since, *reopened]), retry, now)]


def _present(
    detail: JobDetail, since: int, retry: Event | None, now: int
) -> Iterator[TimelineSpan]:
    job = detail.job
    place = (min(job.step, len(job.plan) - 1), job.current.service, job.attempt + 1)
    if job.state is State.RUNNING and job.started_at is not None and not job.fan_out:
        place = (place[0], place[1], max(1, job.attempt))
        yield from _waited(place, since, job.started_at, retry)
        yield TimelineSpan(SpanKind.RUNNING, *place, job.started_at, None, job.region)
    elif job.state is State.QUEUED and not job.fan_out:
        yield from _waited(place, since, now, retry, is_over=False)
        if detail.eta is not None:
            start, end = now + detail.eta.p50, now + detail.eta.p90
            yield TimelineSpan(SpanKind.EXPECTED, *place, start, end)
    elif job.fan_out:
        yield TimelineSpan(SpanKind.RUNNING, *place, job.created_at, job.finished_at)


def _waited(
    place: tuple[int, str, int],
    since: int,
    until: int,
    retry: Event | None,
    *,
    is_over: bool = True,
) -> Iterator[TimelineSpan]:
    """The time between two attempts: the pause before a retry, then the wait for a slot."""
    end = until if is_over else None
    ready = since
    if retry is not None and retry.data.get("again_at", 0) > since:
        pause = SpanKind.BACKOFF
        if retry.data.get("fault") == Fault.UNAVAILABLE:
            pause = SpanKind.UNAVAILABLE
        again_at = retry.data["again_at"]
        if again_at >= until:
            yield TimelineSpan(pause, *place, since, end)
            return
        yield TimelineSpan(pause, *place, since, again_at)
        ready = again_at
    if ready < until or not is_over:
        yield TimelineSpan(SpanKind.WAITING, *place, ready, end)


def totals(spans: Sequence[TimelineSpan], now: int) -> dict[SpanKind, int]:
    """The time (µs) of each kind of span, without what is expected."""
    found: dict[SpanKind, int] = {kind: 0 for kind in SpanKind if kind is not SpanKind.EXPECTED}
    for span in spans:
        if span.kind is not SpanKind.EXPECTED:
            found[span.kind] += max(0, (now if span.until is None else span.until) - span.since)
    return found
