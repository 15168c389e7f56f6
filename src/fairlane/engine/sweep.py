"""Sweeps: what has to happen by itself. Any number of processes may run them at once; each step is
guarded in the ledger, so nothing happens twice."""

from __future__ import annotations

from fairlane.engine.core import Core, publish
from fairlane.engine.rebuild import publish_left_behind
from fairlane.engine.settle import Failed, settle
from fairlane.index.index import Freed
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.entry import Entry
from fairlane.model.lease import Lease
from fairlane.model.state import State
from fairlane.policy.admission import HOUR

SECOND = 1_000_000
BATCH = 500
HELD_TOO_LONG = 5 * SECOND
VERIFY_AGAIN = 30 * SECOND
PROMOTIONS = 100
RETIRED_AT_ONCE = 1_000
DEFAULT_LEASE = 15 * SECOND


async def reap(core: Core) -> int:
    """Take back expired leases; but only after a whole lease of unbroken contact with the ledger:
    a process that was away must not judge those who could not reach it."""
    now = core.now()
    if now - core.reached_since < DEFAULT_LEASE:
        return 0
    expired = await core.ledger.expired(now, BATCH)
    if expired:
        await settle(core, [_gone(lease, now) for lease in expired])
    return len(expired)


def _gone(lease: Lease, now: int) -> Failed:
    if now >= lease.deadline:
        message = f"no result after {(lease.deadline - lease.started_at) / SECOND:g} s"
        return Failed(lease, Fault.TIMEOUT, message, closed=False, outcome=Outcome.TIMEOUT)
    message = f"worker {lease.worker} was not heard of again"
    return Failed(lease, Fault.TRANSIENT, message, closed=False, outcome=Outcome.LOST)


async def free_slots(core: Core) -> int:
    """Slots kept for calls that must be over by now."""
    now = core.now()
    tokens = await core.ledger.free_slots(now, BATCH)
    await core.index.free([Freed(token) for token in tokens], now)
    return len(tokens)


async def give_up(core: Core) -> int:
    """Jobs that have waited longer than their owners allow."""
    written = await core.ledger.give_up(core.now(), BATCH)
    (jobs,) = written.outcomes
    await core.index.take([(job.id, job.rev + 1) for job in jobs])
    core.ledger.published(written.receipts)
    core.watchers.tell(job.id for job in jobs)
    core.watchers.tell(job.parent for job in jobs if job.parent is not None)
    return len(jobs)


async def check_held(core: Core) -> int:
    """Proposals that were never confirmed, or leases whose end the index has missed."""
    now = core.now()
    old = await core.index.unverified(now - HELD_TOO_LONG, BATCH)
    if not old:
        return 0
    written = await core.ledger.revoke(
        [(held.entry.id, held.entry.rev, held.token) for held in old]
    )
    runs = [held.token for held, here in zip(old, written.outcomes, strict=True) if here]
    gone = [held for held, here in zip(old, written.outcomes, strict=True) if not here]
    await core.index.verified(runs, now + VERIFY_AGAIN)
    if gone:
        kept = {row.token for row in await core.ledger.slots()}
        await core.index.free([Freed(held.token) for held in gone if held.token not in kept], now)
        await core.index.verified([held.token for held in gone if held.token in kept], now)
        await publish(core, [held.entry.id for held in gone])
    core.ledger.published(written.receipts)
    return len(gone)


async def announce_promotions(core: Core) -> int:
    """Tell owners what their jobs count as by now. Order never depends on it."""
    now = core.now()
    found = await core.index.promotable(now, PROMOTIONS)
    if not found:
        return 0
    names = core.catalog.tiers.names
    await core.ledger.promote([(job, names[rank]) for job, rank in found], names, now)
    await core.index.announced(found)
    core.watchers.tell(job for job, _ in found)
    return len(found)


async def reconcile(core: Core) -> int:
    """Compare every live row with the index. Only names what to publish: the publisher reads the
    present state, so a page that is old by now does no harm."""
    corrected = 0
    async for page in core.ledger.live(2_000):
        queued = [core.entry(job) for job in page if job.state is State.QUEUED]
        wrong = await core.index.differing(queued)
        if wrong:
            corrected += await _mend(core, wrong)
    async for shown in core.index.walk(2_000):
        corrected += await _drop_ghosts(core, shown)
    for pool in core.catalog.all_pools():
        rows = [(row.slot, row.token) for row in await core.ledger.slots(pool)]
        corrected += await core.index.sync_slots(pool, rows, core.now())
    return corrected


async def _mend(core: Core, wrong: list[tuple[str, Entry | None]]) -> int:
    found = await core.ledger.jobs([job for job, _ in wrong])
    for job_id, shown in wrong:
        job = found.get(job_id)
        truth = core.entry(job) if job is not None and job.state is State.QUEUED else None
        if shown is not None:
            await core.index.mend(shown, truth, core.now())
        elif truth is not None:
            await core.index.put([truth], core.now())
    return len(wrong)


async def _drop_ghosts(core: Core, shown: list[Entry]) -> int:
    """What the index shows as waiting and the ledger does not have in line."""
    found = await core.ledger.jobs([entry.id for entry in shown])
    ghosts = [
        entry
        for entry in shown
        if entry.id not in found or found[entry.id].state is not State.QUEUED
    ]
    for ghost in ghosts:
        await core.index.mend(ghost, None, core.now())
    return len(ghosts)


async def retire(core: Core) -> int:
    """Remove what has been kept long enough, a bounded number at a time. An hour at the least: the
    hourly quota counts records."""
    limits, now = core.catalog.limits, core.now()
    return await core.ledger.retire(
        now - max(HOUR, round(limits.keep_finished * SECOND)),
        now - round(limits.keep_dead * SECOND),
        now - round(limits.keep_keys * SECOND),
        RETIRED_AT_ONCE,
    )


class Sweeper:
    """All of the above, each at its own pace."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._rounds = 0

    async def sweep(self) -> None:
        """One round, meant to run once a second."""
        core = self._core
        self._rounds += 1
        await reap(core)
        await free_slots(core)
        await give_up(core)
        await check_held(core)
        if self._rounds % 5 == 0:
            await announce_promotions(core)
            await publish_left_behind(core)
        if self._rounds % 30 == 0:
            await reconcile(core)
        if self._rounds % 60 == 0:
            await core.index.tidy(core.now())
        if self._rounds % 300 == 0:
            while await retire(core) == RETIRED_AT_ONCE:
                pass
