"""The clock interface. Times are integer microseconds since 1970, UTC, and are passed in: code that
decides never reads a clock."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Awaitable
from typing import Protocol

from fairlane.units import SECOND


def seconds(value: float) -> int:
    """Seconds as microseconds."""
    return round(value * SECOND)


class Clock(Protocol):
    """The one clock of a process. It never goes back."""

    def now(self) -> int: ...

    def steady(self) -> bool:
        """Whether this time is reliable enough to expire leases by."""

    def machine(self) -> int:
        """The machine's own time, to measure durations. A clock that only a test moves stands still
        here, too."""

    async def sleep(self, duration: int) -> None:
        """Returns when `duration` microseconds of this clock have passed."""

    async def wait(self, event: asyncio.Event, duration: int) -> bool:
        """Whether the event was set before `duration` microseconds of this clock had passed."""


class SystemClock:
    """Wall time at the start, advanced by the monotonic clock: a changed system time cannot expire
    a lease."""

    def __init__(self, not_before: int = 0) -> None:
        """`not_before` is a time that has already passed: a system clock that was set back does not
        undo it."""
        start = max(time.time_ns(), not_before * 1000)
        self._offset = start - time.monotonic_ns()

    def now(self) -> int:
        return (time.monotonic_ns() + self._offset) // 1000

    def steady(self) -> bool:
        return True

    def machine(self) -> int:
        return time.monotonic_ns() // 1000

    async def sleep(self, duration: int) -> None:
        await asyncio.sleep(duration / SECOND)

    async def wait(self, event: asyncio.Event, duration: int) -> bool:
        try:
            async with asyncio.timeout(duration / SECOND):
                await event.wait()
        except TimeoutError:
            return False
        return True


class ManualClock:
    """A clock that a test moves. Sleepers wake in the order of their time."""

    def __init__(self, start: int = 1_700_000_000 * SECOND) -> None:
        self._now = start
        self._count = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now(self) -> int:
        return self._now

    def steady(self) -> bool:
        return True

    def machine(self) -> int:
        return 0

    async def sleep(self, duration: int) -> None:
        await self._due(duration)

    async def wait(self, event: asyncio.Event, duration: int) -> bool:
        return await _first(event.wait(), self._due(duration))

    def _due(self, duration: int) -> asyncio.Future[None]:
        """Done when the time has come, counted from this call, not from its await."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if duration <= 0:
            future.set_result(None)
        else:
            self._count += 1
            heapq.heappush(self._sleepers, (self._now + duration, self._count, future))
        return future

    def advance(self, duration: int) -> None:
        """Moves time on and wakes the sleepers that are due."""
        self._now += duration
        while self._sleepers and self._sleepers[0][0] <= self._now:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)


async def _first(wanted: Awaitable[object], other: Awaitable[object]) -> bool:
    tasks = [asyncio.ensure_future(wanted), asyncio.ensure_future(other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
