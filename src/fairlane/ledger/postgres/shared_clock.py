"""The shared clock: the database's time, extrapolated by each process's monotonic clock."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import asyncpg

from fairlane.background import end
from fairlane.clock import SystemClock
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

SYNC_PERIOD_MICROSECONDS = 10 * SECOND
"""Time between two comparisons with the database."""

RESYNC_MICROSECONDS = SECOND
MAX_SYNC_ROUND_TRIP_MICROSECONDS = SECOND // 10
"""A longer round trip makes the answer too imprecise to use."""

MAX_JUMP_MICROSECONDS = SECOND
"""A larger difference is not drift: one of the clocks was set."""

SLEW_DIVISOR = 20
"""Small differences are slewed, at a twentieth of the time that passes."""

FOLLOW_MICROSECONDS = 3_600 * SECOND
"""How long a process that has corrected the shared time makes no further correction, except to
return to the database's time."""


def _since_boot() -> int:
    """A clock that continues while the machine sleeps and is never set. The wall clock, where there
    is none."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time_ns() if clock is None else time.clock_gettime_ns(clock)


class Agreed(NamedTuple):
    """What the processes have agreed on: the correction added to the database's wall clock, how
    often it has changed, and the latest time that any process has stored."""

    correction: int
    number: int
    seen: int

    @classmethod
    def parse(cls, text: str) -> Agreed:
        return cls(*map(int, text.split("/")))

    def __str__(self) -> str:
        return "/".join(map(str, self))


class Reading(NamedTuple):
    """All clocks at one moment, in microseconds: how far the database's wall clock, and the clock
    that continues while this machine sleeps, are ahead of the monotonic one; and the agreement."""

    database: int
    own: int
    agreed: Agreed
    took: int


Read = Callable[[], Awaitable[tuple[int, str]]]
Write = Callable[[str, str], Awaitable[bool]]


class SharedClock(SystemClock):
    """A clock that all processes share. `read` returns the database's wall clock and the agreement;
    `write` replaces an old agreement by a new one (compare and swap)."""

    def __init__(
        self,
        read: Read,
        write: Write,
        monotonic: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
        boot: Callable[[], int] = _since_boot,
    ) -> None:
        super().__init__()
        self._read, self._write = read, write
        self._monotonic, self._wall, self._boot = monotonic, wall, boot
        self._from = self._to = self._since = 0
        self._last: Reading | None = None
        self._suspected_jump: int | None = None
        self._corrected_at = -FOLLOW_MICROSECONDS
        self._settled_at = 0
        self._keeper: asyncio.Task[None] | None = None

    def now(self) -> int:
        mono = self._monotonic() // 1000
        return mono + self._ahead(mono)

    def _ahead(self, mono: int) -> int:
        """How far this clock is ahead of the monotonic one, while it is slewed to its target."""
        gap = self._to - self._from
        if gap == 0:
            return self._to
        most = (mono - self._since) // SLEW_DIVISOR
        return self._from + max(-most, min(most, gap))

    def steady(self) -> bool:
        return self._mono() >= self._settled_at

    async def start(self) -> None:
        """Set the clock from the database. If the result is close neither to the latest stored time
        nor to this machine's clock, the database's clock may just have been set: the clock counts
        as unsteady until other processes have had time to correct it."""
        readings = [await self._look() for _ in range(3)]
        reading = min(readings, key=lambda each: each.took)
        self._last = reading
        self._go_to(reading.database + reading.agreed.correction, at_once=True)
        known = (reading.agreed.seen, self._wall() // 1000)
        if all(
            abs(self.now() - each) > SYNC_PERIOD_MICROSECONDS + SYNC_PERIOD_MICROSECONDS // 2
            for each in known
        ):
            self._settled_at = self._mono() + SYNC_PERIOD_MICROSECONDS + 2 * RESYNC_MICROSECONDS
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        await end(self._keeper)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(
                (SYNC_PERIOD_MICROSECONDS if self._suspected_jump is None else RESYNC_MICROSECONDS)
                / SECOND
            )
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                await self.compare()

    async def compare(self) -> None:
        """Follow the database's clock, or publish a correction to all processes if that clock has
        jumped."""
        reading = await self._look()
        if reading.took > MAX_SYNC_ROUND_TRIP_MICROSECONDS or self._last is None:
            return
        gap = reading.database + reading.agreed.correction - self._ahead(self._mono())
        if abs(gap) <= MAX_JUMP_MICROSECONDS:
            self._suspected_jump = None
            self._last = reading
            self._go_to(reading.database + reading.agreed.correction)
            now = reading.agreed._replace(seen=max(reading.agreed.seen, self.now()))
            await self._write(str(reading.agreed), str(now))
        elif (
            self._suspected_jump is None or abs(gap - self._suspected_jump) > MAX_JUMP_MICROSECONDS
        ):
            self._suspected_jump = gap
        else:
            await self._decide(reading, self._last, gap)

    async def _decide(self, reading: Reading, last: Reading, gap: int) -> None:
        """Two readings agree that a clock was set. It was the database's if that is the one that
        moved and this machine has not slept."""
        moved = abs(reading.database - last.database) > MAX_JUMP_MICROSECONDS // 2
        slept = abs(reading.own - last.own) > MAX_JUMP_MICROSECONDS // 2
        mono, agreed = self._mono(), reading.agreed
        undone = abs(agreed.correction - gap) < abs(agreed.correction)
        if moved and not slept and (undone or mono - self._corrected_at > FOLLOW_MICROSECONDS):
            corrected = Agreed(agreed.correction - gap, agreed.number + 1, agreed.seen)
            if not await self._write(str(agreed), str(corrected)):
                return
            self._corrected_at = mono
            log.warning(
                "the database's clock was set by %.1f s: time goes on without it", gap / 1e6
            )
        else:
            log.warning("this process was %.1f s behind everybody's time", gap / SECOND)
            self._go_to(reading.database + reading.agreed.correction, at_once=True)
            self._settled_at = mono + SYNC_PERIOD_MICROSECONDS
        self._suspected_jump, self._last = None, reading

    def _go_to(self, ahead: int, *, at_once: bool = False) -> None:
        mono = self._mono()
        self._from = ahead if at_once else self._ahead(mono)
        self._to, self._since = ahead, mono

    async def _look(self) -> Reading:
        before = self._mono()
        wall, text = await self._read()
        after = self._mono()
        middle = (before + after) // 2
        own = self._boot() // 1000 - self._mono()
        return Reading(wall - middle, own, Agreed.parse(text), after - before)

    def _mono(self) -> int:
        return self._monotonic() // 1000
