"""I3: fencing, a stale write is refused. I5: at most one live lease per job. I20: each step of a
pipeline completes once, in order. And the recovery times after a kill."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from fairlane.history_check.records import (
    AttemptRecord,
    CallRecord,
    FaultRecord,
    History,
    ResultRecord,
)
from fairlane.history_check.report import Violation

CLOCK_TOLERANCE_SECONDS = 0.25
"""Times of two processes may differ by this much. A real overlap lasts as long as a lease."""

WRITTEN_AS = {"completed": {"completed"}, "failed": {"failed", "timeout"}}
"""The outcomes that an accepted report may have."""


def stale_writes_are_refused(history: History) -> Iterator[Violation]:
    """The stored output of a step is that of the attempt that completed it; an accepted report is
    what the ledger has written for that lease."""
    calls = {each.id: each for each in history.of(CallRecord)}
    for job in history.jobs.values():
        completed = {
            each.step: each for each in history.attempts[job.id] if each.outcome == "completed"
        }
        for step, call_id in job.outputs.items():
            call, attempt = calls.get(call_id), completed.get(int(step))
            if call is None or attempt is None:
                continue
            is_its = (call.job, call.step, call.attempt) == (job.id, int(step), attempt.number)
            if not is_its or (call.lease and attempt.lease and call.lease != attempt.lease):
                yield Violation(
                    "I3",
                    f"job {job.id} step {step}: the stored output is of attempt {call.attempt} of "
                    f"step {call.step}, attempt {attempt.number} has completed it",
                    "stale accepted",
                )
    by_lease = {
        each.lease: each
        for attempts in history.attempts.values()
        for each in attempts
        if each.lease
    }
    for report in history.of(ResultRecord):
        expected = WRITTEN_AS.get(report.status)
        if report.code or expected is None or report.job not in history.jobs:
            continue
        attempt = by_lease.get(report.lease)
        outcome = "unknown" if attempt is None else attempt.outcome
        if outcome not in expected:
            yield Violation(
                "I3",
                f"job {report.job}: a report of {report.status} was accepted, and the lease is "
                f"{outcome}",
                "stale accepted",
            )


def one_live_lease_per_job(history: History) -> Iterator[Violation]:
    """In the order of their fences, each lease begins after the one before it has ended."""
    for job, attempts in history.attempts.items():
        for before, after in pairwise(attempts):
            if after.fence == before.fence:
                yield Violation("I5", f"job {job}: two leases have the fence {after.fence}")
            elif after.started_at < before.ended_at - CLOCK_TOLERANCE_SECONDS:
                yield Violation(
                    "I5",
                    f"job {job}: lease {after.fence} began {before.ended_at - after.started_at:.2f}"
                    f" s before lease {before.fence} ended ({before.outcome})",
                )


def each_step_completes_once(history: History) -> Iterator[Violation]:
    """A step begins when the step before it has completed, and never again after its own
    success. A completed job has completed every step."""
    for job in history.jobs.values():
        attempts = history.attempts[job.id]
        successes = Counter(each.step for each in attempts if each.outcome == "completed")
        for step, n in successes.items():
            if n > 1:
                yield Violation("I20", f"job {job.id}: step {step} was completed {n} times")
        yield from _out_of_order(job.id, attempts)
        if job.status == "completed" and job.steps:
            missing = sorted(set(range(job.steps)) - set(successes))
            if missing:
                yield Violation("I20", f"job {job.id} is completed without the steps {missing}")


def _out_of_order(job: str, attempts: Sequence[AttemptRecord]) -> Iterator[Violation]:
    completed: set[int] = set()
    for each in attempts:
        if each.step in completed:
            yield Violation("I20", f"job {job}: step {each.step} ran again after its success")
        elif each.step > 0 and each.step - 1 not in completed:
            yield Violation(
                "I20", f"job {job}: step {each.step} began before step {each.step - 1} completed"
            )
        if each.outcome == "completed":
            completed.add(each.step)


def recoveries(history: History) -> list[float]:
    """For each lease that a killed process held, the seconds from the kill until the job could be
    claimed again."""
    kills: dict[str, list[float]] = defaultdict(list)
    for fault in history.of(FaultRecord):
        if fault.fault == "kill":
            kills[fault.target].append(fault.at)
    process = {each.lease: each.process for each in history.of(CallRecord) if each.lease}
    callers = sorted(at for target, times in kills.items() if "dispatch" in target for at in times)
    found = []
    for attempts in history.attempts.values():
        for each in attempts:
            if each.outcome != "lost":
                continue
            times = kills[process[each.lease]] if each.lease in process else callers
            before = [at for at in times if each.started_at <= at <= each.ended_at]
            if before:
                found.append(each.ended_at - max(before))
    return found
