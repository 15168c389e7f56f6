"""The reconciler: compares the index with the ledger, and corrects the index."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import aclosing

from fairlane.engine.core import Core, sync_pool
from fairlane.engine.failover import return_to_regions
from fairlane.engine.task_types import in_use
from fairlane.model.queue_entry import Entry
from fairlane.model.state import State

RECONCILE_PAGE = 200
PAUSE_FACTOR, MAX_PAUSE_SECONDS, MAX_TOTAL_PAUSE_SECONDS = 4, 2.0, 30.0
"""A full pass pauses after each full page. The pause is this multiple of the time the page took, at
most this many seconds, and at most this many seconds for the whole pass."""


async def reconcile(core: Core) -> int:
    """Compare every live job in the ledger with the index, and correct the index. A correction
    reads the job again, so an outdated page does no harm. Returns the number of corrections."""
    corrected = 0
    in_line: set[str] = set()
    pauses = PassPauses()
    began = core.now()
    async with aclosing(core.ledger.live(RECONCILE_PAGE)) as pages:
        async for read in pages:
            page = await return_to_regions(core, read)
            queued = [core.entry(job) for job in page if job.state is State.QUEUED]
            in_line.update(entry.id for entry in queued)
            core.task_types.see(in_use(core.catalog, page), began)
            wrong = await core.index.differing(queued)
            if wrong:
                corrected += await _correct_entries(core, wrong)
            await pauses.pause(len(page))
    core.task_types.forget(began)
    async for shown in core.index.scan(RECONCILE_PAGE):
        suspects = [entry for entry in shown if entry.id not in in_line]
        corrected += await _remove_stale_entries(core, suspects)
        await pauses.pause(len(shown))
    core.instrumentation.corrected(corrected)
    return corrected + await sync_pools(core)


async def sync_pools(core: Core) -> int:
    corrected = 0
    for pool in [*core.catalog.all_pools(), *await _miscounted(core)]:
        corrected += await sync_pool(core, pool)
    return corrected


class PassPauses:
    """The pauses of a full pass. A pause after each full page leaves the stores to other requests.
    The total of all pauses is bounded."""

    def __init__(self) -> None:
        self._paused, self._began = 0.0, time.perf_counter()

    async def pause(self, rows: int) -> None:
        if rows == RECONCILE_PAGE and self._paused < MAX_TOTAL_PAUSE_SECONDS:
            seconds = min(MAX_PAUSE_SECONDS, PAUSE_FACTOR * (time.perf_counter() - self._began))
            await asyncio.sleep(seconds)
            self._paused += seconds
        self._began = time.perf_counter()


async def _miscounted(core: Core) -> list[str]:
    """Pools of users and of task types for which the index counts other running jobs than the
    ledger."""
    configured = core.catalog.all_pools()
    held = Counter(row.slot.pool for row in await core.ledger.slots())
    held.subtract({use.pool: use.held for use in (await core.index.stats()).pools})
    return sorted(pool for pool, n in held.items() if n and pool not in configured)


async def _correct_entries(core: Core, wrong: list[tuple[str, Entry | None]]) -> int:
    """Correct these entries of the index. Returns how many were really wrong: an entry that only
    looked wrong because its job had just moved is equal in the second comparison."""
    found = await core.ledger.jobs([job for job, _ in wrong])
    queued = [core.entry(job) for job in found.values() if job.state is State.QUEUED]
    still = await core.index.differing(queued)
    missing: list[Entry] = []
    for job_id, shown in wrong:
        job = found.get(job_id)
        truth = core.entry(job) if job is not None and job.state is State.QUEUED else None
        if shown is not None:
            await core.index.correct_entry(shown, truth, core.now())
        elif truth is not None:
            missing.append(truth)
    await core.index.put(missing, core.now())
    return len(still)


async def _remove_stale_entries(core: Core, shown: list[Entry]) -> int:
    """Remove entries that wait in the index and are not queued in the ledger. Returns how many
    there were, without jobs that were claimed after the index was read."""
    found = await core.ledger.jobs([entry.id for entry in shown]) if shown else {}
    ghosts = [
        entry
        for entry in shown
        if entry.id not in found or found[entry.id].state is not State.QUEUED
    ]
    moved = {job for job, _ in await core.index.differing(ghosts)}
    moved |= {job.id for job in found.values() if job.state is State.RUNNING}
    for ghost in ghosts:
        await core.index.correct_entry(ghost, None, core.now())
    return sum(ghost.id not in moved for ghost in ghosts)
