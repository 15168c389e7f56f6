"""Idle workers that wait for work, and which of them are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from fairlane.model.step import Lane
from fairlane.model.worker import Loaded, Worker


class IdleWorkers:
    """In order of their coming: the first is the longest idle."""

    def __init__(self) -> None:
        self._asleep: dict[str, tuple[Worker, Loaded]] = {}
        self._wakeups: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._asleep)

    def file(self, worker: Worker, loaded: Loaded) -> None:
        self._asleep[worker.id] = (worker, loaded)
        self._wakeups[worker.id] = asyncio.Event()

    def leave(self, worker_id: str) -> None:
        self._asleep.pop(worker_id, None)
        self._wakeups.pop(worker_id, None)

    def wakeup(self, worker_id: str) -> asyncio.Event | None:
        """Rung when there may be something to do."""
        return self._wakeups.get(worker_id)

    def dismiss(self, worker_id: str) -> None:
        """Ring all calls in which this worker waits."""
        for waiter in list(self._wakeups):
            if waiter == worker_id or waiter.startswith(f"{worker_id}#"):
                self._asleep.pop(waiter, None)
                self._wakeups[waiter].set()

    def wake_for(self, lane: Lane, tier: str, model: str) -> None:
        """One worker for one job: a warm one first, else the longest idle."""
        longest: str | None = None
        for worker_id, (worker, loaded) in self._asleep.items():
            if worker.covers(lane) and (worker.tiers is None or tier in worker.tiers):
                if not model or loaded.model == model:
                    longest = worker_id
                    break
                longest = longest or worker_id
        self._ring(longest)

    def wake(self, n: int, useful: Callable[[Worker], bool]) -> None:
        """Up to n workers for which this holds, the longest idle first."""
        found = (each for each, (worker, _) in self._asleep.items() if useful(worker))
        for worker_id in list(islice(found, n)):
            self._ring(worker_id)

    def _ring(self, worker_id: str | None) -> None:
        if worker_id is not None:
            del self._asleep[worker_id]
            self._wakeups[worker_id].set()
