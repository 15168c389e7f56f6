"""Retry-After of users with too many pending jobs: an estimate of when a pending place frees, which
is when the first of these jobs ends."""

from __future__ import annotations

import asyncio

from fairlane.engine.core import Core
from fairlane.engine.queries import standing
from fairlane.errors import FairlaneError, is_store_error
from fairlane.ledger.messages import Owner
from fairlane.model.job import Job
from fairlane.model.state import State
from fairlane.units import HOUR, SECOND

MAX_CACHED_ESTIMATES = 10_000
ESTIMATE_CACHE_MICROSECONDS = SECOND


async def place_frees_at(core: Core, owner: Owner, now: int) -> int | None:
    """When the next of this user's jobs probably ends (µs), within an hour; None if that is
    unknown. Estimates are cached for a second, and simultaneous callers share one."""
    cached = core.pending_places.get(owner)
    if cached is None or not 0 <= now - cached[0] < ESTIMATE_CACHE_MICROSECONDS:
        if len(core.pending_places) >= MAX_CACHED_ESTIMATES:
            core.pending_places.clear()
        cached = (now, asyncio.ensure_future(_estimate(core, owner, now)))
        core.pending_places[owner] = cached
    return await asyncio.shield(cached[1])


async def _estimate(core: Core, owner: Owner, now: int) -> int | None:
    """The estimate; None if a store does not answer or the service is no longer configured."""
    try:
        return await _ends_at(core, owner, now)
    except Exception as error:
        if isinstance(error, FairlaneError) or is_store_error(error):
            return None
        raise


async def _ends_at(core: Core, owner: Owner, now: int) -> int | None:
    job = await core.ledger.next_to_end(owner)
    starts_in = await _starts_in(core, job, now) if job is not None else None
    if job is None or starts_in is None:
        return None
    work = sum(core.costs.get(step.service, job.model) for step in job.plan[job.step :])
    return now + min(HOUR, max(SECOND, starts_in + work))


async def _starts_in(core: Core, job: Job, now: int) -> int | None:
    """The time until this job starts (µs), negative if it runs. None if that is unknown: the index
    does not answer, or the service is paused."""
    if job.state is State.RUNNING:
        return (job.started_at or now) - now
    placement = await core.ask_index(standing(core, job))
    return placement.eta.p50 if placement is not None and placement.eta is not None else None
