"""Subscriptions (pub/sub) to the events of a job. A subscriber is woken and reads the events from
the ledger, so it misses none. Other processes are notified over pub/sub."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from fairlane.index.index import Index


class Subscriptions:
    def __init__(self, index: Index) -> None:
        self._index = index
        self._wakeups: dict[str, list[asyncio.Event]] = {}
        self._listeners: Counter[str] = Counter()
        self._known: dict[str, object] = {}
        self.fan_outs: set[str] = set()
        """Fan-outs with a listener in this process. Their progress changes without a message."""

    def jobs(self) -> list[str]:
        """The jobs that are watched in this process."""
        return list(self._wakeups)

    def listened(self) -> list[str]:
        """The jobs with a listener in this process."""
        return list(self._listeners)

    @contextmanager
    def listening(self, job: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job may have changed, in any process. Clear it, then
        read the job: a change after the read sets it again."""
        with self.watching(job) as wakeup:
            self._listeners[job] += 1
            if self._listeners[job] == 1:
                self._index.subscribe(job, lambda: self.wake([job]))
            try:
                yield wakeup
            finally:
                self._listeners[job] -= 1
                if not self._listeners[job]:
                    del self._listeners[job]
                    self.fan_outs.discard(job)
                    self._index.unsubscribe(job)

    @contextmanager
    def watching(self, job: str, wakeup: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """An event that is set whenever this process has changed the job. A watcher of many jobs
        may pass one event for all of them, and may watch one job more than once."""
        wakeup = wakeup or asyncio.Event()
        self._wakeups.setdefault(job, []).append(wakeup)
        try:
            yield wakeup
        finally:
            wakeups = self._wakeups[job]
            wakeups.remove(wakeup)
            if not wakeups:
                del self._wakeups[job]

    def compare(self, present: Mapping[str, object]) -> int:
        """Wake the listeners of jobs that have changed since the last comparison. Returns how
        many."""
        changed = [job for job, look in present.items() if self._known.get(job) != look]
        self._known = dict(present)
        self.wake(changed)
        return len(changed)

    def tell(self, jobs: Iterable[str]) -> None:
        """Notify all processes that this process has changed these jobs. Call it after the
        commit."""
        changed = list(jobs)
        self.wake(changed)
        self._index.notify(changed)

    def wake(self, jobs: Iterable[str]) -> None:
        """Wake the listeners and watchers of these jobs in this process."""
        if self._wakeups:
            for job in jobs:
                for wakeup in self._wakeups.get(job, ()):
                    wakeup.set()
