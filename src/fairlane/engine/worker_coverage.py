"""Worker coverage (capability matching): which lanes the live workers cover together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from fairlane.model.step import Lane
from fairlane.model.worker import Worker

LANES_AT_ONCE = 500
"""Lanes compared before the event loop may run other tasks."""


class WorkerCoverage:
    """The distinct offers of workers, by service. Equal workers count once, and a lane is compared
    only with workers of its service."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        self._by_service: dict[str | None, set[Worker]] = {}
        for each in workers:
            offer = Worker(
                "",
                region=each.region,
                capabilities=each.capabilities,
                excluded=each.excluded,
                regions=each.regions,
            )
            for service in (None,) if each.services is None else each.services:
                self._by_service.setdefault(service, set()).add(offer)

    def cover(self, lane: Lane) -> bool:
        return any(
            offer.covers(lane)
            for service in (None, lane.service)
            for offer in self._by_service.get(service, ())
        )


async def uncovered(lanes: Mapping[str, int], workers: Iterable[Worker]) -> dict[str, int]:
    """The lanes that none of these workers covers, and the number of jobs waiting in each."""
    offers, found = WorkerCoverage(workers), {}
    for n, (name, waiting) in enumerate(lanes.items(), 1):
        if not offers.cover(Lane.parse(name)):
            found[name] = waiting
        if n % LANES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found
