"""Wake-up rules: which idle workers have a job that they can start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.index.memory.service_queue import LaneQueue, ServiceQueue
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
        any(serves(index, worker, queue) for queue in service_queue.queues.values())
        and _has_room(index, name, service_queue, worker)
        for name, service_queue in index.service_queues.items()
        if service_queue.lanes
    )


def _has_room(index: MemoryIndex, name: str, service_queue: ServiceQueue, worker: Worker) -> bool:
    if service_queue.service.paused:
        return False
    uses = [index.pools.get(pool.name) for pool in index.catalog.pools(name, worker.region)]
    return all(use is None or use.spare > 0 for use in uses)
