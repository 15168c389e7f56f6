"""Retry terms that workers declare for their task types at registration."""

from __future__ import annotations

from fairlane.engine.core import Core
from fairlane.model.step import RetryTerms


async def refresh_declared(core: Core) -> None:
    """Read the declared terms from the ledger, because workers may register with other processes.
    If several workers declare a task type, the newest worker decides: worker ids sort by time."""
    found: dict[str, RetryTerms] = {}
    for worker, _ in await core.ledger.workers():
        found.update(worker.tasks)
    if found != core.declared:
        core.declare(found)
