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
"""Between two comparisons."""

RESYNC_MICROSECONDS = SECOND
MAX_SYNC_ROUND_TRIP_MICROSECONDS = SECOND // 10
"""An answer that took longer says too little about the time it was given at."""

MAX_JUMP_MICROSECONDS = SECOND
"""Clocks that differ by more have not drifted: one was set."""

SLEW_DIVISOR = 20
"""Small differences are made up for by a twentieth of the time that passes."""

FOLLOW_MICROSECONDS = 3_600 * SECOND
"""A process that has corrected everybody's time follows the others for an hour, except back to what
the database says."""


def _since_boot() -> int:
    """Goes on while the machine sleeps, and is never set. Where there is none: the wall clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time_ns() if clock is None else time.clock_gettime_ns(clock)


class Agreed(NamedTuple):
    """What processes know of time together: what is added to the database's wall clock, how often
    that has changed, and the latest time anybody has written down."""

    correction: int
    number: int
    seen: int

    @classmethod
    def parse(cls, text: str) -> Agreed:
        return cls(*map(int, text.split("/")))

    def __str__(self) -> str:
        return "/".join(map(str, self))


class Reading(NamedTuple):
    """All clocks at one moment, in microseconds: how far the database's wall clock, and the one
    that goes on while this machine sleeps, are ahead of the monotonic one; and what was agreed."""

    database: int
    own: int
    agreed: Agreed
    took: int


Read = Callable[[], Awaitable[tuple[int, str]]]
Write = Callable[[str, str], Awaitable[bool]]


class SharedClock(SystemClock):
    """`read` gives the database's wall clock and the agreement; `write` replaces an old agreement
    by a new one, unless somebody else has."""

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
        self._doubt: int | None = None
        self._spoke = -FOLLOW_MICROSECONDS
        self._settled_at = 0
        self._keeper: asyncio.Task[None] | None = None

    def now(self) -> int:
        mono = self._monotonic() // 1000
        return mono + self._ahead(mono)

    def _ahead(self, mono: int) -> int:
        """How far this clock is ahead of the monotonic one: on its way to where it should be."""
        gap = self._to - self._from
        if gap == 0:
            return self._to
        most = (mono - self._since) // SLEW_DIVISOR
        return self._from + max(-most, min(most, gap))

    def steady(self) -> bool:
        return self._mono() >= self._settled_at

    async def start(self) -> None:
        """Take the time over. If it is neither close to what somebody has written down nor to this
        machine's, the database's clock may just have been set: others get the time to say so."""
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
                (SYNC_PERIOD_MICROSECONDS if self._doubt is None else RESYNC_MICROSECONDS) / SECOND
            )
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                await self.compare()

    async def compare(self) -> None:
        """Follow the database, or, if it is the one that has jumped, say so to everybody."""
        reading = await self._look()
        if reading.took > MAX_SYNC_ROUND_TRIP_MICROSECONDS or self._last is None:
            return
        gap = reading.database + reading.agreed.correction - self._ahead(self._mono())
        if abs(gap) <= MAX_JUMP_MICROSECONDS:
            self._doubt = None
            self._last = reading
            self._go_to(reading.database + reading.agreed.correction)
            now = reading.agreed._replace(seen=max(reading.agreed.seen, self.now()))
            await self._write(str(reading.agreed), str(now))
        elif self._doubt is None or abs(gap - self._doubt) > MAX_JUMP_MICROSECONDS:
            self._doubt = gap
        else:
            await self._decide(reading, self._last, gap)

    async def _decide(self, reading: Reading, last: Reading, gap: int) -> None:
        """Two readings say the same: somebody's clock was set. It was the database's if that is the
        one that moved, and this machine has not slept."""
        moved = abs(reading.database - last.database) > MAX_JUMP_MICROSECONDS // 2
        slept = abs(reading.own - last.own) > MAX_JUMP_MICROSECONDS // 2
        mono, agreed = self._mono(), reading.agreed
        undone = abs(agreed.correction - gap) < abs(agreed.correction)
        if moved and not slept and (undone or mono - self._spoke > FOLLOW_MICROSECONDS):
            corrected = Agreed(agreed.correction - gap, agreed.number + 1, agreed.seen)
            if not await self._write(str(agreed), str(corrected)):
                return
            self._spoke = mono
            log.warning(
                "the database's clock was set by %.1f s: time goes on without it", gap / 1e6
            )
        else:
            log.warning("this process was %.1f s behind everybody's time", gap / SECOND)
            self._go_to(reading.database + reading.agreed.correction, at_once=True)
            self._settled_at = mono + SYNC_PERIOD_MICROSECONDS
        self._doubt, self._last = None, reading

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
