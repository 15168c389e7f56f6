"""What workers declare for their task types when they register: how often a task is tried, after
which pauses, and for how long. It holds for tasks that are submitted afterwards."""

from __future__ import annotations

from fairlane.engine.core import Core
from fairlane.model.step import RetryTerms

REFRESH_MICROSECONDS = 5_000_000
"""How long what was read is good enough: workers register with other processes, too."""


async def refresh_declared(core: Core) -> None:
    """Of several workers the one that registered last decides: their ids sort by time."""
    now = core.now()
    if now < core.declared_until:
        return
    core.declared_until = now + REFRESH_MICROSECONDS
    found: dict[str, RetryTerms] = {}
    for worker, _ in await core.ledger.workers():
        found.update(worker.tasks)
    if found != core.declared:
        core.declare(found)
