"""Index rebuild: all processes join one epoch of the index, or one of them builds it from the
ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from fairlane.engine import live_settings
from fairlane.engine.core import Core, publish
from fairlane.engine.services_in_use import ServicesInUse
from fairlane.engine.task_types import in_use
from fairlane.errors import NotReady, UnknownName
from fairlane.ids import token
from fairlane.index.index import HeldEntry
from fairlane.ledger.messages import Stamp, Turn
from fairlane.model.job import Job
from fairlane.model.state import State
from fairlane.policy.aging import RESERVE_AFTER_PATIENCES

REBUILD_PAGE = 2_000

RIGHT, SIGN_OF_LIFE = 5.0, 1.0
"""Seconds after which a rebuilder that gives no sign of life keeps nobody else from trying, and
between its signs."""

REBUILD_POLL_SECONDS = 0.05
"""Seconds between two looks at somebody else's rebuild."""

REBUILD_BACKOFF_SECONDS = 10.0
"""Seconds for which a process that cannot rebuild leaves it to others."""


async def keep_up(core: Core) -> bool:
    """Settings and index are those that all processes share. Whether claims work."""
    if core.rebuilding.locked():
        return False
    async with core.rebuilding:
        stamp, turn = await core.ledger.turn()
        if stamp.settings != core.settings:
            await live_settings.follow(core)
        known = await core.index.serves(stamp.life)
        if known is None:
            core.ready.clear()
            return _may_rebuild(core, stamp, turn) and await _rebuild(core, turn.number)
        if known < core.settings:
            await live_settings.tell_index(core)
        core.epoch = stamp.life
        core.ready.set()
        return True


async def join(core: Core) -> None:
    """Returns when claims work."""
    while True:
        if await keep_up(core):
            return
        await asyncio.sleep(REBUILD_POLL_SECONDS)


async def rebuild(core: Core) -> None:
    """A new life, whatever the index says of itself. One that is away is waited for a while."""
    until = asyncio.get_running_loop().time() + RIGHT
    async with core.rebuilding:
        core.ready.clear()
        while True:
            try:
                stamp, turn = await core.ledger.turn()
                if _may_rebuild(core, stamp, turn) and await _rebuild(core, turn.number):
                    return
            except NotReady:
                if asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(REBUILD_POLL_SECONDS)


def _may_rebuild(core: Core, stamp: Stamp, turn: Turn) -> bool:
    """Nobody is at it, or it was this process, or whoever it was is gone."""
    now = asyncio.get_running_loop().time()
    if core.watched[0] != turn.number:
        core.watched = (turn.number, now)
    silent = now - core.watched[1]
    return now >= core.not_before and (not turn.busy or stamp.life == core.tried or silent >= RIGHT)


async def _rebuild(core: Core, over: int) -> bool:
    """Claims pause, submits do not. Afterwards order and slots are those of the ledger. False if
    somebody else is at it; one that failed is tried again by the next sweep."""
    life = core.tried = token()
    if not await core.ledger.begin_rebuild(life, over):
        return False
    core.epoch = life
    alive = asyncio.create_task(_give_signs_of_life(core, life))
    opened = False
    try:
        await core.index.begin(life)
        await _load(core, life)
        opened = await core.index.open(life, core.now())
    except UnknownName:
        core.not_before = asyncio.get_running_loop().time() + REBUILD_BACKOFF_SECONDS
        raise
    finally:
        alive.cancel()
        with suppress(Exception):  # others will see that nothing moves
            await core.ledger.extend_rebuild(life, done=True)
    if opened:
        core.ready.set()
    return opened


async def _give_signs_of_life(core: Core, life: str) -> None:
    while True:
        await asyncio.sleep(SIGN_OF_LIFE)
        with suppress(Exception):  # the next one may get through
            await core.ledger.extend_rebuild(life)


async def _load(core: Core, life: str) -> None:
    tiers = core.catalog.tiers
    longest = max(tiers.patience) * RESERVE_AFTER_PATIENCES
    ranks = {name: rank for rank, name in enumerate(tiers.names)}
    starts = await core.ledger.starts(core.now() - longest, ranks)
    await core.index.load_starts(life, starts)
    needs = ServicesInUse(core.catalog)
    async with aclosing(_with_the_next_one_read(core.ledger.live(REBUILD_PAGE))) as pages:
        async for page in pages:
            needs.check(page)
            core.task_types.see(in_use(core.catalog, page), core.now())
            await core.index.load(
                life,
                [core.entry(job) for job in page if job.state is State.QUEUED],
                [held(core, job) for job in page if job.token is not None],
            )
    # Read last: whoever holds a slot now was running then, so somebody looks after it.
    slots = await core.ledger.slots()
    await core.index.load_slots(life, [(row.slot, row.token) for row in slots])


Pages = AsyncGenerator[list[Job], None]


async def _with_the_next_one_read(pages: Pages) -> Pages:
    """Each page, while the next one is being read."""
    coming: asyncio.Future[list[Job]] = asyncio.ensure_future(anext(pages, []))
    try:
        while page := await coming:
            coming = asyncio.ensure_future(anext(pages, []))
            yield page
    finally:
        coming.cancel()
        await asyncio.wait([coming])
        await pages.aclose()


def held(core: Core, job: Job) -> HeldEntry:
    """A running job as the index would remember it."""
    return HeldEntry(job.token or "", core.entry(job), (), job.started_at or 0)


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
