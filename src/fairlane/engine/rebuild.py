"""Rebuild: a new life of the index, from the ledger alone."""

from __future__ import annotations

from fairlane.engine.core import Core, publish
from fairlane.ids import token
from fairlane.index.index import Held
from fairlane.model.job import Job
from fairlane.model.state import State
from fairlane.model.step import Plan
from fairlane.policy.aging import HOLD_AFTER

PAGE = 2_000


async def rebuild(core: Core) -> None:
    """Claims pause, submits do not. Afterwards order and slots are those of the ledger. One at a
    time; one that failed is tried again by the next sweep."""
    async with core.rebuilding:
        core.ready.clear()
        epoch = token()
        await core.ledger.new_epoch(epoch)
        await core.index.begin(epoch)
        core.epoch = epoch
        await _load(core)
        if await core.index.open(epoch, core.now()):
            core.ready.set()


async def _load(core: Core) -> None:
    tiers = core.catalog.tiers
    longest = max(tiers.patience) * HOLD_AFTER
    ranks = {name: rank for rank, name in enumerate(tiers.names)}
    await core.index.load_starts(await core.ledger.starts(core.now() - longest, ranks))
    slots = await core.ledger.slots()
    await core.index.load_slots([(row.slot, row.token) for row in slots])
    checked: set[tuple[Plan, int]] = set()
    async for page in core.ledger.live(PAGE):
        for job in page:
            if (job.plan, job.step) not in checked:
                checked.add((job.plan, job.step))
                for step in job.plan[job.step :]:
                    core.catalog.service(step.service)
        await core.index.load(
            [core.entry(job) for job in page if job.state is State.QUEUED],
            [held(core, job) for job in page if job.token is not None],
        )


def held(core: Core, job: Job) -> Held:
    """A running job as the index would remember it."""
    return Held(job.token or "", core.entry(job), (), job.started_at or 0)


async def ensure_epoch(core: Core) -> None:
    """A claim was refused for its epoch: if nobody is rebuilding already, do."""
    if not core.rebuilding.locked() and await core.ledger.epoch() != core.epoch:
        await rebuild(core)


async def publish_left_behind(core: Core, limit: int = 1_000) -> int:
    """Outbox rows that a crash, or a half-written batch, has left."""
    total = 0
    while rows := await core.ledger.outbox(limit):
        await publish(core, sorted({job for _, jobs in rows for job in jobs}))
        await core.ledger.clear_outbox([seq for seq, _ in rows])
        total += len(rows)
        if len(rows) < limit:
            break
    return total
