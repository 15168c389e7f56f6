"""Whoever guesses keys is slowed down. The table has a fixed size, whatever comes."""

from __future__ import annotations

import time
from collections import OrderedDict

MOST = 10
WINDOW = 60.0
REMEMBERED = 10_000


class Failures:
    """How often a source has failed with a key's name in the last minute."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def too_many(self, source: str, key: str) -> bool:
        began, count = self._counts.get((source, key), (0.0, 0))
        return count > MOST and time.monotonic() - began < WINDOW

    def note(self, source: str, key: str) -> None:
        now = time.monotonic()
        began, count = self._counts.pop((source, key), (now, 0))
        if now - began >= WINDOW:
            began, count = now, 0
        self._counts[source, key] = (began, count + 1)
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
