"""Checks a whole history, promise by promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlane.history_check import credits, durability, endings, faults, leases, limits
from fairlane.history_check.records import FaultRecord, History, StorageRecord
from fairlane.history_check.report import HistoryReport, Violation

CHECKS: dict[str, Callable[[History], Iterator[Violation]]] = {
    "I1": durability.no_accepted_job_is_lost,
    "I3": leases.stale_writes_are_refused,
    "I5": leases.one_live_lease_per_job,
    "I7": limits.granted_slots_within_limits,
    "I8": limits.calls_within_limits,
    "I12": durability.one_job_per_operation,
    "I14": credits.books_are_right,
    "I20": leases.each_step_completes_once,
    "I21": endings.one_terminal_state,
    "I25": endings.events_without_a_gap,
    "I33": faults.works_again_after_a_partition,
    "I34": faults.a_full_disk_damages_nothing,
}


def check(history: History) -> HistoryReport:
    found = [violation for verify in CHECKS.values() for violation in verify(history)]
    notes = [
        f"{service}: at most {most} calls at once, limit {limit}, overrun "
        f"{'strict' if strict else 'fast'}"
        for service, most, limit, strict in limits.most_calls(history)
    ]
    checked = [each.store for each in history.of(StorageRecord) if each.ok]
    if checked:
        notes.append(f"storage checked: {', '.join(checked)}")
    run = history.run
    return HistoryReport(
        tuple(found),
        acked=len(durability.accepted_jobs(history)),
        faults=len(history.of(FaultRecord)),
        seed=None if run is None else run.seed,
        recoveries=tuple(leases.recoveries(history)),
        notes=tuple(notes),
    )
