"""Queue view (read side): the front of a service's queue, the positions of many waiting jobs at
once, and the expected wait of a new job. Its cost does not depend on how many jobs wait."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from fairlane.engine.core import Core
from fairlane.engine.queries import (
    Placement,
    is_runnable,
    placed,
    service_rate,
    unplaced,
    waiting_of,
)
from fairlane.engine.single_flight import SingleFlight
from fairlane.errors import NotReady
from fairlane.index.index import EXACT_POSITIONS, BandDepth
from fairlane.ledger.messages import Filter
from fairlane.model.job import Band, Job
from fairlane.model.service import Fairness
from fairlane.model.state import State
from fairlane.model.step import Lane
from fairlane.policy.eta_calibration import Eta, rounded
from fairlane.units import SECOND

MAX_FRONT_AGE_MICROSECONDS = SECOND
"""The front of a queue is simulated claim by claim. All requests of this time share one look."""

MAX_FRONTS = 1_000
"""The most services whose front is kept."""


class Front(NamedTuple):
    """The first waiting jobs of a service in the order in which they would start, and when that was
    looked at (µs). `places` has the position of each."""

    at: int
    jobs: list[str]
    places: dict[str, int]


class Fronts:
    """The fronts of the queues, each looked at no more than once a second by this process."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._looks = SingleFlight[Front](core.now, MAX_FRONT_AGE_MICROSECONDS, MAX_FRONTS)

    async def get(self, service: str) -> Front:
        """Raises NotReady if the index cannot be reached."""
        return await self._looks.get(service, partial(self._look, service))

    async def _look(self, service: str) -> Front:
        now = self._core.now()
        found = await self._core.index.front(service, EXACT_POSITIONS, now)
        jobs = [each.entry.id for each in found]
        return Front(now, jobs, {job: n for n, job in enumerate(jobs, 1)})


class QueueView(NamedTuple):
    """The running jobs of a service, longest-running first, then its first waiting jobs in their
    order, up to a limit; and how many there are in total."""

    running: list[Job]
    waiting: list[Job]
    total: int


async def service_view(core: Core, fronts: Fronts, service: str, limit: int) -> QueueView:
    running = await core.ledger.running_jobs(Filter(), service, limit)
    everywhere = await core.ledger.running_in()
    total = sum(n for (name, _), n in everywhere.items() if name == service)
    waiting: list[Job] = []
    with suppress(NotReady):  # then only the running jobs are known
        front = (await fronts.get(service)).jobs[: limit - len(running)]
        found = await core.ledger.jobs(front)
        waiting = [found[job] for job in front if job in found]
        total += sum((await core.index.lanes(service)).values())
    waiting = [job for job in waiting if job.state is State.QUEUED]
    return QueueView(running, waiting, max(total, len(running) + len(waiting)))


async def placements(core: Core, fronts: Fronts, jobs: Sequence[Job]) -> dict[str, Placement]:
    """The present positions of those of these jobs that are queued. They are exact near the front,
    as of the last look at it, and estimates elsewhere."""
    queued = [job for job in jobs if job.state is State.QUEUED and not job.fan_out]
    now = core.now()
    try:
        standings = await core.index.estimates([job.id for job in queued], now)
        services = {job.current.service for job in queued}
        looked_at = {service: await fronts.get(service) for service in services}
    except NotReady:
        return {job.id: unplaced(job.tier) for job in queued}
    runnable = {lane: await is_runnable(core, lane) for lane in {job.lane for job in queued}}
    found = {}
    for job in queued:
        standing = standings.get(job.id)
        if standing is None:
            found[job.id] = unplaced(job.tier)
            continue
        position = _position(job, standing.position, looked_at[job.current.service])
        here = placed(core, waiting_of(job), standing, now, runnable=runnable[job.lane])
        found[job.id] = here._replace(position=rounded(position) if position else None)
    return found


def _position(job: Job, estimated: int, front: Front) -> int:
    """Its place in the front. A job that waited when the front was looked at and is not part of it
    waits behind it. A delayed job has no position (0)."""
    if estimated == 0 or max(job.ready_at, job.paid_at) > front.at:
        return estimated
    return front.places.get(job.id) or max(len(front.jobs) + 1, estimated)


# --- new jobs ------------------------------------------------------------------------------------
async def expected_waits(
    core: Core, service: str, models: Sequence[str]
) -> dict[str, dict[str, Eta | None]]:
    """By tier and model, the time until a job that a new user submits now would start (µs). None if
    that is unknown: the service is paused, its circuit breaker is open, or no live worker runs
    it."""
    tiers = core.catalog.tiers.names
    if not await _is_served(core, service):
        return {tier: dict.fromkeys(models) for tier in tiers}
    running = await core.ledger.running_in()
    busy = sum(n for (name, _), n in running.items() if name == service)
    serving = service_rate(core, service, free=busy < core.service(service).limit)
    depths = await core.index.band_depths(service)
    fair = core.service(service).fairness is Fairness.USER
    found: dict[str, dict[str, Eta | None]] = {}
    for rank, tier in enumerate(tiers):
        ahead = jobs_ahead(depths, rank, fair=fair)
        found[tier] = {
            model: core.forecasts.for_new_job(service, tier, model, ahead, serving)
            for model in models
        }
    return found


async def _is_served(core: Core, service: str) -> bool:
    if core.service(service).paused or not await is_runnable(core, Lane(service).name):
        return False
    return not (await core.index.breaker(service, None)).is_open


def jobs_ahead(depths: Sequence[BandDepth], rank: int, *, fair: bool) -> int:
    """The number of jobs before a new one of this tier: all of better bands and tiers. In its own
    tier all jobs, or where users take turns one of each flow."""
    ahead = 0
    for depth in depths:
        if depth.band is not Band.TIER or depth.rank < rank:
            ahead += depth.jobs
        elif depth.rank == rank:
            ahead += depth.flows if fair else depth.jobs
    return ahead
