"""Subscriptions to the events of a job. A subscriber is woken and reads the events from the ledger,
so it misses none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager


class Subscriptions:
    def __init__(self) -> None:
        self._bells: dict[str, list[asyncio.Event]] = {}
        self._known: dict[str, object] = {}

    def jobs(self) -> list[str]:
        """Those that somebody watches."""
        return list(self._bells)

    @contextmanager
    def watching(self, job: str, wakeup: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job has changed since it was last cleared. Who watches
        many jobs may bring one bell for all of them, and may watch one job more than once."""
        wakeup = wakeup or asyncio.Event()
        self._bells.setdefault(job, []).append(wakeup)
        try:
            yield wakeup
        finally:
            wakeups = self._bells[job]
            wakeups.remove(wakeup)
            if not wakeups:
                del self._bells[job]

    def compare(self, present: Mapping[str, object]) -> int:
        """Tell of those that are not as they were at the last comparison."""
        changed = [job for job, look in present.items() if self._known.get(job) != look]
        self._known = dict(present)
        self.tell(changed)
        return len(changed)

    def tell(self, jobs: Iterable[str]) -> None:
        if self._bells:
            for job in jobs:
                for wakeup in self._bells.get(job, ()):
                    wakeup.set()
