"""Unique identifiers: job ids that sort by time (UUIDv7), and random lease tokens."""

from __future__ import annotations

import os
import random


class Ids:
    """UUIDv7 strings, strictly increasing within one process, also inside one millisecond.

    Ids are unique, not secret: a fast generator with a random start is enough."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(os.urandom(16) if seed is None else seed)
        self._millisecond = self._last = 0
        self._prefix = (-1, "")
        self._endings: list[str] = []

    def new(self, now: int) -> str:
        # 48 bits of milliseconds, then 26 bits that count within the millisecond:
        # UUIDv7's 12 bits before the variant and the first 14 bits behind it.
        stamp = self._last + 1
        if now // 1000 > self._millisecond:
            self._millisecond = now // 1000
            stamp = max((self._millisecond << 26) | self._random.getrandbits(20), stamp)
        self._last = stamp
        prefix = stamp >> 14
        if prefix != self._prefix[0]:
            text = f"{stamp >> 42:08x}-{stamp >> 26 & 0xFFFF:04x}-7{prefix & 0xFFF:03x}"
            self._prefix = (prefix, text)
        if not self._endings:  # 48 random bits each; drawing many at a time is cheaper
            drawn = self._random.randbytes(6 * 256).hex()
            self._endings = [drawn[i : i + 12] for i in range(0, len(drawn), 12)]
        return "%s-%x-%s" % (self._prefix[1], 0x8000 | stamp & 0x3FFF, self._endings.pop())  # noqa: UP031 - half the time


class Tokens:
    """Lease tokens: 128 secret bits each. The holder of a token holds the lease. They are drawn
    many at a time, because a system call costs more than its bytes."""

    def __init__(self, at_a_time: int = 256) -> None:
        self._at_a_time = at_a_time
        self._ready: list[str] = []

    def new(self) -> str:
        if not self._ready:
            drawn = os.urandom(16 * self._at_a_time).hex()
            self._ready = [drawn[i : i + 32] for i in range(0, len(drawn), 32)]
        return self._ready.pop()


def token() -> str:
    return os.urandom(16).hex()


def floor(at: int) -> str:
    """The smallest id that could have been created at `at` or later."""
    text = f"{at // 1000:012x}"
    return f"{text[:8]}-{text[8:]}-0000-0000-000000000000"
