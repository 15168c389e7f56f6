"""Retry terms that workers declare for their task types at registration."""

from __future__ import annotations

from fairlane.engine.core import Core
from fairlane.model.step import RetryTerms


async def refresh_declared(core: Core) -> None:
    """As the ledger has it: workers register with other processes, too. Of several workers the one
    that registered last decides: their ids sort by time."""
    found: dict[str, RetryTerms] = {}
    for worker, _ in await core.ledger.workers():
        found.update(worker.tasks)
    if found != core.declared:
        core.declare(found)
