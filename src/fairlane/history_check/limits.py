"""I7: granted slots never exceed the limit. I8: nor do the calls at the endpoint, if the service is
strict about overrun."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from fairlane.history_check.records import (
    CallEndRecord,
    CallRecord,
    FaultRecord,
    History,
    SlotRecord,
    SlotsRecord,
)
from fairlane.history_check.report import Violation

FOREVER = float("inf")


def granted_slots_within_limits(history: History) -> Iterator[Violation]:
    """In the slots that the ledger granted and freed, and whenever they were counted. At the end no
    slot is taken.

    The times of an attempt do not show this: a process reads them before its transaction. While the
    database stands still, one lease then seems to begin seconds before another ends."""
    limits = history.run.limits if history.run else {}
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for slot in history.of(SlotRecord):
        until = FOREVER if slot.freed_at is None else slot.freed_at
        spans[slot.service].append((slot.taken_at, until))
    worked = {each.service for attempts in history.attempts.values() for each in attempts}
    for service, limit in limits.items():
        if service in worked and not spans[service]:
            yield Violation("I7", f"{service}: it has attempts, but no slot was recorded")
        most = most_at_once(spans[service])
        if most > limit:
            yield Violation("I7", f"{service}: {most} slots at once, limit {limit}", "over limit")
    for sample in history.of(SlotsRecord):
        if sample.held > sample.limit:
            yield Violation(
                "I7", f"{sample.pool}: {sample.held} slots taken of {sample.limit}", "over limit"
            )
        elif sample.final and sample.held:
            yield Violation("I7", f"{sample.pool}: {sample.held} slots are taken after the end")


def calls_within_limits(history: History) -> Iterator[Violation]:
    for service, most, limit, strict in most_calls(history):
        if strict and most > limit:
            yield Violation("I8", f"{service}: {most} calls at once, limit {limit}", "over limit")


def most_calls(history: History) -> Iterator[tuple[str, int, int, bool]]:
    """Each service with the most calls at once that it has seen, its limit, and whether it is
    strict. A call of a killed process ends with the process."""
    if history.run is None:
        return
    kills: dict[str, list[float]] = defaultdict(list)
    for fault in history.of(FaultRecord):
        if fault.fault == "kill":
            kills[fault.target].append(fault.at)
    ends = {each.id: each.at for each in history.of(CallEndRecord)}
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for call in history.of(CallRecord):
        killed = [at for at in kills[call.process] if at >= call.at] if call.process else []
        spans[call.service].append((call.at, min([ends.get(call.id, FOREVER), *killed])))
    for service, limit in sorted(history.run.limits.items()):
        yield service, most_at_once(spans[service]), limit, service in history.run.strict


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """A span that ends when another begins does not overlap with it."""
    changes = sorted(
        change for start, end in spans for change in ((start, 1, 1), (end, 0, -1)) if start < end
    )
    most = now = 0
    for _, _, change in changes:
        now += change
        most = max(most, now)
    return most
