"""The outbox relay: publishes to the index what a crashed process wrote and did not publish."""

from __future__ import annotations

from fairlane.engine.core import Core, publish


async def publish_left_behind(core: Core, limit: int = 1_000) -> int:
    """Publish the outbox rows that a crash or a partly written batch has left. Returns their
    number."""
    total = 0
    while rows := await core.ledger.outbox(limit):
        await publish(core, sorted({job for _, jobs in rows for job in jobs}))
        await core.ledger.clear_outbox([seq for seq, _ in rows])
        total += len(rows)
        if len(rows) < limit:
            break
    return total
