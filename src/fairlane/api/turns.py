"""Refusing costs time, too. Who was refused and asks again before they were told to is heard when
it is their turn: so many a second, in the order in which they ask. That slows down nobody but
themselves."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

A_SECOND = 2_000
"""Costs about a tenth of a core."""

LONGEST = 0.5
"""Seconds. A thousand connections have their turn within it."""

SOON = 0.8
"""Seconds. The least that anybody is told to wait is one, by a clock that may be a little fast."""

TICK = 0.005
MOST_BYTES = 16 << 20
"""That are kept for those who wait."""


class Heard(Protocol):
    """Somebody who can be left waiting."""

    def go_on(self) -> None: ...


class Turns:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next = clock, 0.0
        self._waiting: deque[tuple[float, int, Heard]] = deque()
        self._bytes = 0

    def wait(self, one: Heard, size: int) -> bool:
        """Whether it has to, with so many bytes to be kept: then it goes on when it is its turn."""
        now = self._clock()
        if not self._waiting:
            self._next = max(self._next, now - TICK)
            if self._next <= now:
                self._next += 1 / A_SECOND
                return False
        if self._bytes + size > MOST_BYTES:
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
        now = self._clock()
        while self._waiting and (self._next <= now or self._waiting[0][0] <= now - LONGEST):
            self._next = min(self._next + 1 / A_SECOND, now + LONGEST)
            _, size, one = self._waiting.popleft()
            self._bytes -= size
            one.go_on()

    def _look_again(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_later(TICK, self._tick)
