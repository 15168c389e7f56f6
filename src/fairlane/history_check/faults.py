"""I33: after a partition the queue works again. I34: a full disk is answered with 503 and damages
nothing. Both ask for the other promises too, which the other checks verify."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.history_check.durability import ACCEPTED
from fairlane.history_check.records import FaultRecord, History, StorageRecord
from fairlane.history_check.report import Violation

PARTITIONS = frozenset({"cut", "half_open", "silence", "drop_replies", "refuse"})
DISK_FULL = "disk_full"
UNAVAILABLE = 503


def works_again_after_a_partition(history: History) -> Iterator[Violation]:
    for fault in history.of(FaultRecord):
        if fault.fault in PARTITIONS:
            yield from _works_again("I33", history, fault)


def a_full_disk_damages_nothing(history: History) -> Iterator[Violation]:
    full = [each for each in history.of(FaultRecord) if each.fault == DISK_FULL]
    for fault in full:
        yield from _works_again("I34", history, fault)
        end = history.fault_ends.get(fault.id, fault.at)
        for request, response in history.answers("submit"):
            within = fault.at <= request.at and response.at <= end
            if within and response.status >= 500 and response.code != "storage_unavailable":
                yield Violation(
                    "I34",
                    f"a submit was answered {response.status} {response.code} on a full disk",
                )
    storage = history.of(StorageRecord)
    if full and not storage:
        yield Violation("I34", "the disk was full, and the storage was not checked afterwards")
    for each in storage:
        if not each.ok:
            yield Violation("I34", f"{each.store} is damaged: {each.detail}")


def _works_again(promise: str, history: History, fault: FaultRecord) -> Iterator[Violation]:
    """A submit is accepted in time after the end of the fault and of all that overlap with it."""
    end = history.fault_ends.get(fault.id)
    if end is None:
        yield Violation(promise, f"{fault.fault} of {fault.target} has no end")
        return
    others = sorted(
        (each.at, history.fault_ends.get(each.id, each.at)) for each in history.of(FaultRecord)
    )
    for began, ended in others:
        if began <= end:
            end = max(end, ended)
    deadline = end + history.recovery_seconds
    for began, ended in others:  # a fault that follows too soon gives more time
        if end < began <= deadline:
            deadline = max(deadline, ended + history.recovery_seconds)
    answers = sorted(
        (response.at, response.status)
        for request, response in history.answers("submit")
        if request.at >= end
    )
    if not answers or answers[-1][0] < deadline:  # the load ended before
        return
    accepted = [at for at, status in answers if status in ACCEPTED]
    if not accepted or accepted[0] > deadline:
        late = f"{accepted[0] - end:.1f} s after" if accepted else "never after"
        yield Violation(promise, f"a submit is accepted {late} {fault.fault} of {fault.target}")
