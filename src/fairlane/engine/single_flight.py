"""Single flight: simultaneous callers share one read of a store, and callers of the next moment its
outcome, also if the read failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """The outcome of a read is kept for `max_age` (µs by this clock) after the read has ended. All
    outcomes are dropped when there are more than `max_keys`."""

    def __init__(self, now: Callable[[], int], max_age: int, max_keys: int) -> None:
        self._now, self._max_age, self._max_keys = now, max_age, max_keys
        self._reads: dict[Hashable, _Read[T]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` returns or raises. A caller that is cancelled does not cancel the read."""
        found = self._reads.get(key)
        if found is None or not found.is_current(self._now(), self._max_age):
            if len(self._reads) >= self._max_keys:
                self._reads.clear()
            found = self._reads[key] = _Read(self._now, read)
        return await asyncio.shield(found.task)


class _Read(Generic[T]):
    def __init__(self, now: Callable[[], int], read: Callable[[], Awaitable[T]]) -> None:
        self._ended_at: int | None = None
        self.task = asyncio.create_task(self._run(now, read))
        self.task.add_done_callback(_seen)

    async def _run(self, now: Callable[[], int], read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        finally:
            self._ended_at = now()

    def is_current(self, now: int, max_age: int) -> bool:
        if self.task.cancelled():
            return False
        return self._ended_at is None or 0 <= now - self._ended_at < max_age


def _seen(task: asyncio.Task[T]) -> None:
    """Marks an error as seen, in case that all callers were cancelled."""
    if not task.cancelled():
        task.exception()
