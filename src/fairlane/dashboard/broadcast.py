"""Broadcast of dashboard frames to the viewers of one audience: each frame is serialised once. A
viewer that is too slow for every delta gets the newest frame instead."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import orjson

from fairlane.dashboard.delta import difference

MAX_DELTAS = 60
"""Deltas that are kept for viewers that connect again."""


class Broadcast:
    """The frames of one audience. `number` is that of the newest frame; 0 = there is none yet."""

    def __init__(self) -> None:
        self.number = 0
        self.viewers = 0
        self.left_at = 0.0
        self._frame: dict[str, Any] = {}
        self._full: str | None = None
        self._deltas: deque[tuple[int, str]] = deque(maxlen=MAX_DELTAS)
        self._changed = asyncio.Event()

    def publish(self, number: int, frame: dict[str, Any]) -> None:
        if self.number:
            delta = difference(self._frame, frame)
            message = {"n": number, "set": delta.set, "gone": delta.gone}
            self._deltas.append((number, orjson.dumps(message).decode()))
        self.number, self._frame, self._full = number, frame, None
        self.wake()

    def wake(self) -> None:
        """Wake all viewers that wait."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self) -> None:
        """Wait until there is another frame."""
        await self._changed.wait()

    def since(self, number: int) -> list[str]:
        """The messages that bring a viewer of this frame to the newest one: a few deltas, or the
        whole frame."""
        if number == self.number:
            return []
        missed = [text for n, text in self._deltas if n > number]
        first = self._deltas[0][0] - 1 if self._deltas else self.number
        if first <= number < self.number and len(missed) == self.number - number:
            return missed
        return [self.full()]

    def newest(self, number: int) -> str:
        """The message for a viewer that has this frame and could not take every delta: the next
        delta if it misses only that, else the whole frame."""
        if self._deltas and number == self.number - 1:
            return self._deltas[-1][1]
        return self.full()

    def full(self) -> str:
        if self._full is None:
            self._full = orjson.dumps({"n": self.number, "full": self._frame}).decode()
        return self._full
