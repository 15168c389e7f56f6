"""Monitoring reads (read side of the dashboard): depths, slots, the next jobs and activity. The
cost of each does not depend on how many jobs wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from fairlane.engine.activity import PeriodActivity, read_activity
from fairlane.engine.core import Core
from fairlane.engine.queries import service_rate
from fairlane.engine.queue_view import jobs_ahead
from fairlane.errors import NotReady
from fairlane.index.index import BandDepth, NextJob, Stats, TakenSlot
from fairlane.model.service import Fairness
from fairlane.policy.eta_calibration import Eta
from fairlane.units import SECOND

MAX_FLOWS_EXAMINED = 50
"""The most flows of each queue in which the oldest job is looked for."""

NOTHING_WAITS = Stats([], [], {}, 0, 0, {}, {}, {})


class QueueFront(NamedTuple):
    """The next jobs of a service with the ETA of each, and the ETA of a new job by tier. An ETA is
    None while it is unknown. `users` is the number of flows that wait, by rank."""

    jobs: list[tuple[NextJob, Eta | None]]
    new: Mapping[str, Eta | None]
    users: Mapping[int, int]


class Monitor:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def stats(self) -> Stats:
        """The depths of the queues; nothing while the index does not answer."""
        with suppress(NotReady):
            return await self._core.index.stats(MAX_FLOWS_EXAMINED)
        return NOTHING_WAITS

    async def running(self) -> Counter[tuple[str, str | None]]:
        """The number of running jobs by service and region. Reads all running jobs."""
        return await self._core.ledger.running_in()

    async def held_slots(self, pools: Sequence[str]) -> list[TakenSlot]:
        """The taken slots of these pools; none while the index does not answer."""
        with suppress(NotReady):
            return await self._core.index.held_slots(pools)
        return []

    async def activity(self, since: int) -> list[PeriodActivity]:
        """What all processes did, from period `since` on."""
        core = self._core
        return await read_activity(core.activity, core.index, since, core.now())

    def usual_seconds(self, service: str, model: str = "") -> float:
        """The recent duration of an attempt of this service and model, as this process knows
        it."""
        return self._core.costs.get(service, model) / SECOND

    async def front(self, service: str, n: int, busy: int, *, open_for_calls: bool) -> QueueFront:
        """The next n jobs of a service with `busy` running jobs. `open_for_calls` is False while
        its circuit breaker is open."""
        core = self._core
        try:
            found = await core.index.front(service, n, core.now())
            depths = await core.index.band_depths(service)
        except NotReady:
            return QueueFront([], {}, {})
        known = open_for_calls and not core.service(service).paused
        etas = [
            self._eta(service, each.entry.rank, each.entry.model, ahead, busy)
            if known and not each.blocked
            else None
            for ahead, each in enumerate(found)
        ]
        users = {depth.rank: depth.flows for depth in depths if depth.rank >= 0}
        new = self._new_jobs(service, depths, busy) if known else {}
        return QueueFront([*zip(found, etas, strict=True)], new, users)

    def empty_front(self, service: str, busy: int, *, open_for_calls: bool) -> QueueFront:
        """The front of a service for which no job waits."""
        known = open_for_calls and not self._core.service(service).paused
        return QueueFront([], self._new_jobs(service, [], busy) if known else {}, {})

    def _new_jobs(
        self, service: str, depths: Sequence[BandDepth], busy: int
    ) -> dict[str, Eta | None]:
        core = self._core
        fair = core.service(service).fairness is Fairness.USER
        return {
            tier: self._eta(service, rank, "", jobs_ahead(depths, rank, fair=fair), busy)
            for rank, tier in enumerate(core.catalog.tiers.names)
        }

    def _eta(self, service: str, rank: int, model: str, ahead: int, busy: int) -> Eta:
        core = self._core
        serving = service_rate(core, service, free=busy < core.service(service).limit)
        tier = core.catalog.tiers.names[rank]
        return core.forecasts.for_new_job(service, tier, model, ahead, serving)
