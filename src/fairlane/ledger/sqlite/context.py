"""What a job carries from step to step: its input, and the outputs of its finished steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.ledger.rows import step_context
from fairlane.ledger.sqlite.rows import chunks, marks
from fairlane.ledger.sqlite.writer import Transaction


def contexts(tx: Transaction, later: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For jobs beyond their first step: what the earlier ones have made."""
    found: dict[str, dict[str, Any]] = {job: {} for job in later}
    for part in chunks(later):
        for row in tx.execute(
            f"SELECT job, step, service, output, metrics, attempts FROM steps "
            f"WHERE job IN ({marks(part)}) ORDER BY job, step",
            part,
        ):
            job, step, service, output, metrics, attempts = row
            found[job].update(step_context(step, service, output, metrics, attempts))
    return found


def large_inputs(tx: Transaction, jobs: Sequence[str]) -> dict[str, str]:
    """Inputs too long to stand in the job's row."""
    return {
        job: text
        for part in chunks(jobs)
        for job, text in tx.execute(
            f"SELECT job, input FROM inputs WHERE job IN ({marks(part)})", part
        )
    }
