"""Wake-up rules: which idle workers have a job that they can start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.index.memory.service_queue import LaneQueue
from fairlane.model.service import Service
from fairlane.model.step import Lane
from fairlane.model.worker import Worker

if TYPE_CHECKING:
    from fairlane.index.memory.memory import MemoryIndex


def serves(index: MemoryIndex, worker: Worker, queue: LaneQueue) -> bool:
    """Whether the worker accepts jobs of this lane and tier."""
    if worker.tiers is None or queue.rank < 0:
        return worker.covers(queue.lane)
    return index.catalog.tiers.names[queue.rank] in worker.tiers and worker.covers(queue.lane)


def has_work_for(index: MemoryIndex, worker: Worker) -> bool:
    """Whether a job waits that this worker could start now."""
    return any(
        any(
            serves(index, worker, queue) and queue.lane.allows(region)
            for queue in service_queue.queues.values()
        )
        and _has_room(index, service_queue.service, region)
        for service_queue in index.service_queues.values()
        if service_queue.lanes
        for region in worker.places
    )


def _has_room(index: MemoryIndex, service: Service, region: str | None) -> bool:
    if service.paused:
        return False
    uses = [index.pools.get(pool.name) for pool in index.catalog.pools(service.name, region)]
    return all(use is None or use.spare > 0 for use in uses)


def ranked_regions(index: MemoryIndex, lane: Lane, now: int) -> dict[str, int]:
    """The regions that can start a job of this lane now, numbered from the least loaded one. Empty
    for a service without regions."""
    service = index.catalog.service(lane.service)
    loads = []
    for n, (name, region) in enumerate(service.regions.items()):
        can_start = _has_room(index, service, name) and index.admits(service.name, name, now)
        if can_start and lane.allows(name):
            pool = index.pools.get(f"svc:{service.name}@{name}")
            loads.append((len(pool.held) / region.limit if pool and region.limit else 0.0, n, name))
    return {name: rank for rank, (*_, name) in enumerate(sorted(loads))}
