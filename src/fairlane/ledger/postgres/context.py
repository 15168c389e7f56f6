"""What a job carries from step to step: its input, and the outputs of its finished steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.ledger.postgres.transaction import Reader
from fairlane.ledger.rows import step_context

STEPS = """
SELECT job, step, service, output, metrics, attempts FROM steps
WHERE job = ANY($1::text[]) ORDER BY job, step
"""


async def contexts(tx: Reader, later: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For jobs beyond their first step: what the earlier ones have made."""
    found: dict[str, dict[str, Any]] = {job: {} for job in later}
    if found:
        for job, *step in await tx.fetch(STEPS, later):
            found[job].update(step_context(*step))
    return found


async def large_inputs(tx: Reader, jobs: Sequence[str]) -> dict[str, str]:
    """Inputs too long to stand in the job's row."""
    if not jobs:
        return {}
    found = await tx.fetch("SELECT job, input FROM inputs WHERE job = ANY($1::text[])", jobs)
    return {job: text for job, text in found}  # noqa: C416 - a record is no pair to `dict`
