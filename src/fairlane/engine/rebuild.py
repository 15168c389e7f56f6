"""Index rebuild: all processes join one epoch of the index, or one of them builds it from the
ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from fairlane.engine import live_settings
from fairlane.engine.core import Core
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

TAKEOVER_SECONDS, HEARTBEAT_SECONDS = 5.0, 1.0
"""Seconds without a heartbeat after which another process may take over a rebuild, and seconds
between two heartbeats."""

REBUILD_POLL_SECONDS = 0.05
"""Seconds between two checks of a rebuild that another process runs."""

REBUILD_BACKOFF_SECONDS = 10.0
"""Seconds for which a process that failed to rebuild leaves the rebuild to other processes."""


async def keep_up(core: Core) -> bool:
    """Take over the settings and the index epoch that all processes share, and rebuild the index if
    it has none. Returns whether claims work."""
    if core.rebuilding.locked():
        return False
    async with core.rebuilding:
        stamp, turn = await core.ledger.turn()
        if stamp.settings != core.settings:
            await live_settings.follow(core)
        try:
            known = await core.index.serves(stamp.life)
        except NotReady:
            core.index_reached = False
            raise
        core.index_reached = True
        if known is None:
            core.ready.clear()
            return _may_rebuild(core, stamp, turn) and await _rebuild(core, turn.number)
        if known < core.settings or core.settings_told != core.settings:
            await live_settings.tell_index(core)
        core.epoch = stamp.life
        core.ready.set()
        return True


async def join(core: Core) -> None:
    """Wait until the index is ready for claims."""
    while True:
        if await keep_up(core):
            return
        await asyncio.sleep(REBUILD_POLL_SECONDS)


async def rebuild(core: Core) -> None:
    """Build the index in a new epoch, even if the present one is intact. Waits up to 5 s for an
    index that is unreachable."""
    until = asyncio.get_running_loop().time() + TAKEOVER_SECONDS
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
    """Whether this process may rebuild: no rebuild is under way, or the last one was its own, or
    the rebuilding process has sent no heartbeat for 5 s."""
    now = asyncio.get_running_loop().time()
    if core.rebuild_seen[0] != turn.number:
        core.rebuild_seen = (turn.number, now)
    silent = now - core.rebuild_seen[1]
    return now >= core.rebuild_not_before and (
        not turn.busy or stamp.life == core.last_rebuild or silent >= TAKEOVER_SECONDS
    )


async def _rebuild(core: Core, over: int) -> bool:
    """Build the index from the ledger. Claims pause meanwhile, submits do not. Afterwards the order
    and the slots are those of the ledger. False if another process rebuilds. The next sweep repeats
    a rebuild that failed."""
    life = core.last_rebuild = token()
    if not await core.ledger.begin_rebuild(life, over):
        return False
    core.epoch = life
    alive = asyncio.create_task(_send_heartbeats(core, life))
    opened = False
    try:
        await core.index.begin(life)
        await _load(core, life)
        opened = await core.index.open(life, core.now())
    except UnknownName:
        core.rebuild_not_before = asyncio.get_running_loop().time() + REBUILD_BACKOFF_SECONDS
        raise
    finally:
        alive.cancel()
        with suppress(Exception):  # other processes notice the missing heartbeats
            await core.ledger.extend_rebuild(life, done=True)
    if opened:
        core.ready.set()
    return opened


async def _send_heartbeats(core: Core, life: str) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        with suppress(Exception):  # the next heartbeat may succeed
            await core.ledger.extend_rebuild(life)


async def _load(core: Core, life: str) -> None:
    tiers = core.catalog.tiers
    longest = max(tiers.patience) * RESERVE_AFTER_PATIENCES
    ranks = {name: rank for rank, name in enumerate(tiers.names)}
    starts = await core.ledger.starts(core.now() - longest, ranks)
    await core.index.load_starts(life, starts)
    needs = ServicesInUse(core.catalog)
    async with aclosing(_prefetched(core.ledger.live(REBUILD_PAGE))) as pages:
        async for page in pages:
            needs.check(page)
            core.task_types.see(in_use(core.catalog, page), core.now())
            await core.index.load(
                life,
                [core.entry(job) for job in page if job.state is State.QUEUED],
                [held(core, job) for job in page if job.token is not None],
            )
    # Slots are read last: a job that holds a slot now was loaded above as running, so its lease
    # is checked and the slot is freed in the end.
    slots = await core.ledger.slots()
    await core.index.load_slots(life, [(row.slot, row.token) for row in slots])


Pages = AsyncGenerator[list[Job], None]


async def _prefetched(pages: Pages) -> Pages:
    """Yields each page while the next page is being read (prefetch)."""
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
    """The entry that the index keeps of a running job."""
    return HeldEntry(job.token or "", core.entry(job), (), job.started_at or 0)
