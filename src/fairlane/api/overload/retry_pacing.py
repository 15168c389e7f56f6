"""Retry pacing: a caller that was refused and repeats too soon waits for its turn, so that refusals
take a bounded part of the process's time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

SHARE, IN_A_STORM = 0.13, 0.065
"""The part of its time that a process hears them for, and when so many ask that the last of them
would wait long all the same."""

SLOW_LOOP_SECONDS = 0.1
"""Seconds."""

FASTEST, FIRST, SLOWEST = 1 / 10_000, 1 / 4_000, 1 / 1_000
"""Seconds from one to the next: at least, until it is known how long hearing takes, at most."""

COST_SMOOTHING = 0.05
"""How much the last ones move what is known of it."""

MAX_PACING_SECONDS = 0.5
"""Seconds that anybody waits, however slow it is."""

TOO_SOON_SECONDS = 0.8
"""Seconds. The least that anybody is told to wait is one, by a clock that may be a little fast."""

TICK_SECONDS = 0.005
MAX_PENDING_BYTES = 16 << 20
"""That are kept for those who wait."""


class PacedRequest(Protocol):
    """Somebody who can be left waiting."""

    def go_on(self) -> None: ...


class RetryPacer:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next, self._pause = clock, 0.0, FIRST
        self._waiting: deque[tuple[float, int, PacedRequest]] = deque()
        self._bytes = 0

    def wait(self, one: PacedRequest, size: int) -> bool:
        """Whether it has to, with so many bytes to be kept: then it goes on when it is its turn."""
        now = self._clock()
        if not self._waiting:
            self._next = max(self._next, now - TICK_SECONDS)
            if self._next <= now:
                self._next += self._pause
                return False
        if self._bytes + size > MAX_PENDING_BYTES:
            return False
        self._bytes += size
        self._waiting.append((now, size, one))
        if len(self._waiting) == 1:
            self._look_again()
        return True

    def _tick(self) -> None:
        try:
            self.call()
        finally:
            self._look_again()

    def call(self) -> None:
        """Those whose turn it is."""
        now, heard, pause = self._clock(), 0, self._pause
        if len(self._waiting) * pause > SLOW_LOOP_SECONDS:
            pause *= SHARE / IN_A_STORM
        while self._waiting and (
            self._next <= now or self._waiting[0][0] <= now - MAX_PACING_SECONDS
        ):
            self._next = min(self._next + pause, now + MAX_PACING_SECONDS)
            _, size, one = self._waiting.popleft()
            self._bytes -= size
            heard += 1
            one.go_on()
        if heard:
            self._learn((self._clock() - now) / heard)

    def _learn(self, seconds: float) -> None:
        """It took so long to hear one."""
        pause = self._pause + COST_SMOOTHING * (seconds / SHARE - self._pause)
        self._pause = max(FASTEST, min(SLOWEST, pause))

    def _look_again(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
