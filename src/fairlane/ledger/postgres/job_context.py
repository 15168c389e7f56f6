"""The context of a job: its input, and the outputs of its finished steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.ledger.postgres.transaction import Reader
from fairlane.ledger.rows import cell_input, loads, step_context
from fairlane.model.job import Json

STEPS = """
SELECT job, step, service, output, metrics, attempts FROM steps
WHERE job = ANY($1::text[]) ORDER BY job, step
"""


async def contexts(tx: Reader, later: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For jobs beyond their first step: the outputs of the earlier steps."""
    found: dict[str, dict[str, Any]] = {job: {} for job in later}
    if found:
        for job, *step in await tx.fetch(STEPS, later):
            found[job].update(step_context(*step))
    return found


CELLS = "SELECT id, parent, cell FROM jobs WHERE id = ANY($1::text[])"
SHARED = """
SELECT jobs.id, coalesce(jobs.input, inputs.input) FROM jobs
LEFT JOIN inputs ON inputs.job = jobs.id WHERE jobs.id = ANY($1::text[])
"""


async def inputs_elsewhere(tx: Reader, jobs: Sequence[str]) -> dict[str, Json]:
    """Inputs that are not stored in the job's row: too long for it, or shared by the cells of a
    fan-out."""
    if not jobs:
        return {}
    long = await tx.fetch("SELECT job, input FROM inputs WHERE job = ANY($1::text[])", jobs)
    found: dict[str, Json] = {job: loads(text) for job, text in long}
    left = [job for job in jobs if job not in found]
    cells = await tx.fetch(CELLS, left) if left else []
    parents = sorted({parent for _, parent, _ in cells})
    shared = {row[0]: row[1] for row in await tx.fetch(SHARED, parents)} if parents else {}
    found.update((job, cell_input(shared[parent], cell)) for job, parent, cell in cells)
    return found
