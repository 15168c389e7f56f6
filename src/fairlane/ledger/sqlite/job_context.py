"""The context of a job: its input, and the outputs of its finished steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.ledger.rows import cell_input, loads, step_context
from fairlane.ledger.sqlite.statements import chunks, marks
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.job import Json


def contexts(tx: SqliteTransaction, later: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For jobs beyond their first step: the outputs of the earlier steps."""
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


def inputs_elsewhere(tx: SqliteTransaction, jobs: Sequence[str]) -> dict[str, Json]:
    """Inputs that are not stored in the job's row: too long for it, or shared by the cells of a
    fan-out."""
    found: dict[str, Json] = {job: loads(text) for job, text in _long(tx, jobs).items()}
    cells = [
        row
        for part in chunks([job for job in jobs if job not in found])
        for row in tx.execute(
            f"SELECT id, parent, cell FROM jobs WHERE id IN ({marks(part)})", part
        )
    ]
    parents = sorted({parent for _, parent, _ in cells})
    shared = _long(tx, parents)
    for part in chunks([parent for parent in parents if parent not in shared]):
        shared.update(tx.execute(f"SELECT id, input FROM jobs WHERE id IN ({marks(part)})", part))
    found.update((job, cell_input(shared[parent], cell)) for job, parent, cell in cells)
    return found


def _long(tx: SqliteTransaction, jobs: Sequence[str]) -> dict[str, str]:
    return {
        job: text
        for part in chunks(jobs)
        for job, text in tx.execute(
            f"SELECT job, input FROM inputs WHERE job IN ({marks(part)})", part
        )
    }
