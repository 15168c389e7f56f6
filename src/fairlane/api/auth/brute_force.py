"""Brute force protection: a source with too many wrong secrets gets 429. The table has a fixed
size."""

from __future__ import annotations

import time
from collections import OrderedDict

MAX_FAILURES = 10
FAILURE_WINDOW_SECONDS = 60.0
MAX_REMEMBERED_ADDRESSES = 10_000


class FailedLogins:
    """Counts failed logins by client address and key id, in windows of one minute."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def too_many(self, source: str, key: str) -> bool:
        began, count = self._counts.get((source, key), (0.0, 0))
        return count > MAX_FAILURES and time.monotonic() - began < FAILURE_WINDOW_SECONDS

    def note(self, source: str, key: str) -> None:
        now = time.monotonic()
        began, count = self._counts.pop((source, key), (now, 0))
        if now - began >= FAILURE_WINDOW_SECONDS:
            began, count = now, 0
        self._counts[source, key] = (began, count + 1)
        while len(self._counts) > MAX_REMEMBERED_ADDRESSES:
            self._counts.popitem(last=False)
