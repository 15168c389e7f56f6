"""The history checker of the chaos suite: verifies the promises of the queue, offline.

A history is a JSONL file: what clients asked and were answered, what services and workers ran,
which faults were injected, and the final state of the ledger. The checker knows only these records.
It imports nothing of Fairlane, so that a mistake in the engine cannot hide in it.
`python -m fairlane.history_check FILE` checks a file."""

from fairlane.history_check.check import CHECKS, check
from fairlane.history_check.records import History, HistoryError, read_history
from fairlane.history_check.report import HistoryReport, Violation

__all__ = [
    "CHECKS",
    "History",
    "HistoryError",
    "HistoryReport",
    "Violation",
    "check",
    "read_history",
]
