"""Elapsed time that also counts the time in which the process was suspended."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

if hasattr(time, "CLOCK_BOOTTIME"):  # Linux: counts while the machine is suspended
    CLOCK: int | None = time.CLOCK_BOOTTIME
elif sys.platform == "darwin":  # counts too, other than the clock of time.monotonic
    CLOCK = time.CLOCK_MONOTONIC
else:
    CLOCK = None


class Moment(NamedTuple):
    """The machine's running time and its wall clock, in seconds."""

    running: float
    wall: float

    @classmethod
    def now(cls) -> Moment:
        running = time.monotonic() if CLOCK is None else time.clock_gettime(CLOCK)
        return cls(running, time.time())  # noqa: TID251 - also counts while suspended

    def age(self) -> float:
        """Seconds since this moment: the longer of the two clocks. A paused virtual machine may
        lose running time and learns the wall time when it continues. A wall clock that is set
        forward makes the age too long, never too short."""
        now = Moment.now()
        return max(now.running - self.running, now.wall - self.wall)


LONG_AGO = Moment(-1e12, -1e12)
