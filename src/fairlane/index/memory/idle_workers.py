"""The idle workers in a long poll, and the choice of the workers to wake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice

from fairlane.model.step import Lane
from fairlane.model.worker import Loaded, Worker


class IdleWorkers:
    """Ordered by arrival: the first worker is the longest idle."""

    def __init__(self) -> None:
        self._idle: dict[str, tuple[Worker, Loaded]] = {}
        self._wakeups: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._idle)

    def file(self, worker: Worker, loaded: Loaded) -> None:
        self._idle[worker.id] = (worker, loaded)
        self._wakeups[worker.id] = asyncio.Event()

    def leave(self, worker_id: str) -> None:
        self._idle.pop(worker_id, None)
        self._wakeups.pop(worker_id, None)

    def wakeup(self, worker_id: str) -> asyncio.Event | None:
        """The event that is set when there may be a job for this worker."""
        return self._wakeups.get(worker_id)

    def end_waits(self, worker_id: str) -> None:
        """End all pending calls of this worker."""
        for waiter in list(self._wakeups):
            if waiter == worker_id or waiter.startswith(f"{worker_id}#"):
                self._idle.pop(waiter, None)
                self._wakeups[waiter].set()

    def wake_for(self, lane: Lane, tier: str, model: str, regions: Mapping[str, int]) -> None:
        """Wake one worker for one job: one in the best of these regions, if they are ranked; of
        these the first with its model loaded, else the longest idle."""
        chosen: str | None = None
        best = (len(regions), True)
        for worker_id, (worker, loaded) in self._idle.items():
            if worker.covers(lane) and (worker.tiers is None or tier in worker.tiers):
                rank = min(regions.get(place or "", len(regions)) for place in worker.places)
                found = (rank, bool(model) and loaded.model != model)
                if chosen is None or found < best:
                    chosen, best = worker_id, found
                if best == (0, False):
                    break
        self._wake_up(chosen)

    def wake(self, n: int, useful: Callable[[Worker], bool]) -> None:
        """Wake up to n workers for which `useful` is true, the longest idle first."""
        found = (each for each, (worker, _) in self._idle.items() if useful(worker))
        for worker_id in list(islice(found, n)):
            self._wake_up(worker_id)

    def _wake_up(self, worker_id: str | None) -> None:
        if worker_id is not None:
            del self._idle[worker_id]
            self._wakeups[worker_id].set()
