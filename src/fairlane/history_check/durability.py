"""I1: no accepted job is lost. I12: idempotency, one job per operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fairlane.history_check.records import EndRecord, History, ResponseRecord, RunRecord
from fairlane.history_check.report import Violation

ENDED = frozenset({"completed", "failed", "cancelled", "dead"})
ACCEPTED = frozenset({200, 201, 202})


def accepted_jobs(history: History) -> dict[str, str]:
    """The operation of each job that a client was told is accepted."""
    return {
        job: operation
        for response in history.of(ResponseRecord)
        if response.status in ACCEPTED
        for operation, job in response.accepted.items()
    }


def no_accepted_job_is_lost(history: History) -> Iterator[Violation]:
    """Every accepted job is found at the end, and has ended. A history without an end proves
    nothing, so it fails."""
    if history.of(RunRecord) and not history.of(EndRecord):
        yield Violation("I1", "the history has no end: the final state was not read", "lost")
        return
    for job, operation in accepted_jobs(history).items():
        found = history.jobs.get(job)
        if found is None:
            yield Violation("I1", f"job {job} ({operation}) was accepted and is gone", "lost")
        elif found.status not in ENDED:
            yield Violation(
                "I1", f"job {job} ({operation}) is still {found.status} after everything", "lost"
            )


def one_job_per_operation(history: History) -> Iterator[Violation]:
    """All answers to one operation name one job, and the ledger has one. A job whose answer was
    lost counts too."""
    told: dict[str, set[str]] = defaultdict(set)
    for response in history.of(ResponseRecord):
        for operation, job in response.accepted.items():
            told[operation].add(job)
    stored: dict[str, list[str]] = defaultdict(list)
    for found in history.jobs.values():
        if found.operation and not found.parent:
            stored[found.operation].append(found.id)
    for operation in sorted({*told, *stored}):
        jobs = told[operation] | set(stored[operation])
        if len(jobs) > 1:
            yield Violation("I12", f"operation {operation} has {len(jobs)} jobs: {sorted(jobs)}")
