"""Refusing costs time, too. A connection that was refused is heard again when it is its turn: so
many a second, in the order in which they were refused. Who waits as long as they were told does not
notice; who asks again at once slows down nobody but themselves."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

A_SECOND = 2_000
"""About a tenth of what a process can do."""

LONGEST = 0.5
"""Seconds. Somebody may want to cancel over the same connection; a thousand connections have their
turn within it."""

TICK = 0.005


class Heard(Protocol):
    """Somebody who can be left waiting."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Turns:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next = clock, 0.0
        self._waiting: deque[tuple[float, Heard]] = deque()

    def wait(self, one: Heard) -> None:
        """Not heard before its turn."""
        now = self._clock()
        turn = max(now, self._next)
        self._next = min(turn + 1 / A_SECOND, now + LONGEST)
        if turn - now < TICK:
            return
        one.pause_reading()
        if not self._waiting:
            asyncio.get_running_loop().call_later(TICK, self._tick)
        self._waiting.append((turn, one))

    def _tick(self) -> None:
        self.call()
        if self._waiting:
            asyncio.get_running_loop().call_later(TICK, self._tick)

    def call(self) -> None:
        """Those whose turn it is."""
        now = self._clock()
        while self._waiting and self._waiting[0][0] <= now:
            self._waiting.popleft()[1].resume_reading()
