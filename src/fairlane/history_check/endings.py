"""I21: a job has one terminal state. I25: its events are numbered without a gap, for everyone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fairlane.history_check.durability import ACCEPTED
from fairlane.history_check.records import History, JobRecord, StreamEventRecord
from fairlane.history_check.report import Violation

TERMINAL = {
    "JOB_COMPLETE": {"completed"},
    "JOB_FAILED": {"failed", "dead"},
    "JOB_CANCELLED": {"cancelled"},
}
REOPENED = "JOB_REOPENED"
FOR_EVER = frozenset({"completed", "cancelled"})
"""States that a job of its own never leaves. A fan-out may be reopened."""


def one_terminal_state(history: History) -> Iterator[Violation]:
    for job in history.jobs.values():
        yield from _ends_once(history, job)
        if job.api_status and job.api_status != job.status:
            yield Violation(
                "I21", f"job {job.id} is {job.api_status} in the API, {job.status} in the ledger"
            )
    for request, response in history.answers("cancel"):
        found = history.jobs.get(request.job)
        if response.status in ACCEPTED and found is not None and found.status != "cancelled":
            yield Violation("I21", f"job {found.id}: its cancel won, and it is {found.status}")
    for op in ("get", "cancel", "resume", "skip"):
        for request, response in history.answers(op):
            found = history.jobs.get(request.job)
            if found is None or not found.steps or response.state not in FOR_EVER:
                continue
            if found.status != response.state:
                yield Violation(
                    "I21", f"job {found.id} was seen {response.state}, and is {found.status}"
                )


def _ends_once(history: History, job: JobRecord) -> Iterator[Violation]:
    ended_as: str | None = None
    for event in history.events[job.id]:
        if event.type == REOPENED:
            ended_as = None
        elif ended_as is not None:
            yield Violation("I21", f"job {job.id}: {event.type} after {ended_as}")
        if event.type in TERMINAL:
            ended_as = event.type
    if ended_as is not None and job.status not in TERMINAL[ended_as]:
        yield Violation("I21", f"job {job.id} is {job.status}, its last event is {ended_as}")
    if (
        ended_as is None
        and history.events[job.id]
        and job.status in set().union(*TERMINAL.values())
    ):
        yield Violation("I21", f"job {job.id} is {job.status}, and no event says so")


def events_without_a_gap(history: History) -> Iterator[Violation]:
    """From 1 on, as many as the job has had; every subscriber hears the same, in this order."""
    for job, found in history.jobs.items():
        numbers = [each.seq for each in history.events[job]]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Violation("I25", f"job {job}: the events are numbered {numbers}")
        elif found.events and found.events != len(numbers):
            yield Violation("I25", f"job {job} has {len(numbers)} events of {found.events}")
    streams: dict[str, list[StreamEventRecord]] = defaultdict(list)
    for heard in history.of(StreamEventRecord):
        streams[heard.stream].append(heard)
    for stream, heard_events in streams.items():
        job = heard_events[0].job
        numbers = [each.seq for each in heard_events]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Violation("I25", f"job {job}: subscriber {stream} heard {numbers}")
        types = {each.seq: each.type for each in history.events.get(job, [])}
        for each in heard_events:
            if types and types.get(each.seq) != each.type:
                yield Violation(
                    "I25",
                    f"job {job}: subscriber {stream} heard {each.type} as event {each.seq}, it is "
                    f"{types.get(each.seq)}",
                )
