"""Rebuild: a new life of the index, from the ledger alone."""

from __future__ import annotations

from fairlane.engine.core import Core, publish
from fairlane.ids import token
from fairlane.index.index import Held
from fairlane.model.job import Job
from fairlane.model.state import State
from fairlane.policy.aging import HOLD_AFTER

PAGE = 2_000


async def rebuild(core: Core) -> None:
    """Claims pause, submits do not. Afterwards order and slots are those of the ledger."""
    core.ready.clear()
    epoch = token()
    await core.ledger.new_epoch(epoch)
    await core.index.begin(epoch)
    core.epoch = epoch
    tiers = core.catalog.tiers
    longest = max(tiers.patience) * HOLD_AFTER
    ranks = {name: rank for rank, name in enumerate(tiers.names)}
    await core.index.load_starts(await core.ledger.starts(core.now() - longest, ranks))
    slots = await core.ledger.slots()
    await core.index.load_slots([(row.slot, row.token) for row in slots])
    async for page in core.ledger.live(PAGE):
        await core.index.load(
            [core.entry(job) for job in page if job.state is State.QUEUED],
            [held(core, job) for job in page if job.token is not None],
        )
    if await core.index.open(epoch, core.now()):
        core.ready.set()


def held(core: Core, job: Job) -> Held:
    """A running job as the index would remember it."""
    return Held(job.token or "", core.entry(job), (), job.started_at or 0)


async def ensure_epoch(core: Core) -> None:
    """Another process has rebuilt, or began to: follow it."""
    epoch = await core.ledger.epoch()
    if epoch != core.epoch:
        core.epoch = epoch


async def publish_left_behind(core: Core, limit: int = 1_000) -> int:
    """Outbox rows that a crash, or a half-written batch, has left."""
    rows = await core.ledger.outbox(limit)
    if rows:
        await publish(core, sorted({job for _, jobs in rows for job in jobs}))
        await core.ledger.clear_outbox([seq for seq, _ in rows])
    return len(rows)
