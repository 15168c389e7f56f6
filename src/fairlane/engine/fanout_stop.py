"""Stop of a fan-out (fail fast, `on_cell_failure = "stop"`): ends the other cells of a fan-out of
which a cell has failed. The failure marks the parent; decision 26 has the interleavings."""

from __future__ import annotations

from fairlane.engine import job_log
from fairlane.engine.core import Core
from fairlane.engine.job_actions import StrictServices, tell_ended


async def stop(core: Core, parent: str) -> None:
    """End what has not ended of this fan-out, if it is marked to be stopped."""
    strict = StrictServices(core.catalog)
    written = await core.ledger.stop_cells(parent, core.now(), strict)
    (ended,) = written.outcomes
    await tell_ended(core, ended, written.receipts)
    core.subscriptions.tell([parent])
    if ended:
        job_log.stopped(parent, len(ended))


async def stop_marked(core: Core) -> int:
    """Stop the fan-outs whose mark a crash has left, and those whose cells waited too long."""
    parents = await core.ledger.stopping()
    for parent in parents:
        await stop(core, parent)
    return len(parents)
