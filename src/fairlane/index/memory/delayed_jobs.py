"""Delayed jobs: retries in their backoff, and jobs with a later start time."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

from fairlane.model.queue_entry import Entry
from fairlane.model.step import service_of


class DelayedJobs:
    def __init__(self) -> None:
        self._heap: list[tuple[int, str, int]] = []
        self._jobs: dict[str, Entry] = {}
        self._counts: dict[str, dict[tuple[str, int], int]] = {}
        """The number of delayed jobs in each lane and rank, by service."""

    def __contains__(self, job: str) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._jobs.values())

    def add(self, entry: Entry) -> None:
        heapq.heappush(self._heap, (entry.ready_at, entry.id, entry.rev))
        self._jobs[entry.id] = entry
        counts = self._counts.setdefault(service_of(entry.lane), {})
        counts[entry.lane, entry.rank] = counts.get((entry.lane, entry.rank), 0) + 1
        if len(self._heap) > 2 * len(self._jobs) + 64:
            self._heap = [(each.ready_at, each.id, each.rev) for each in self]
            heapq.heapify(self._heap)

    def discard(self, job: str) -> bool:
        """Remove the job. Returns whether it was delayed."""
        entry = self._jobs.pop(job, None)
        if entry is None:
            return False
        service = service_of(entry.lane)
        counts = self._counts[service]
        counts[entry.lane, entry.rank] -= 1
        if not counts[entry.lane, entry.rank]:
            del counts[entry.lane, entry.rank]
        if not counts:
            del self._counts[service]
        return True

    def counts(self) -> list[tuple[str, str, int, int]]:
        """(service, lane, rank, number of delayed jobs), without zeros."""
        return [
            (service, lane, rank, n)
            for service, counts in self._counts.items()
            for (lane, rank), n in counts.items()
        ]

    def lanes_of(self, service: str) -> Counter[str]:
        """The number of delayed jobs in each lane of this service."""
        found = Counter[str]()
        for (lane, _), n in self._counts.get(service, {}).items():
            found[lane] += n
        return found

    def due(self, now: int, most: int) -> Iterator[Entry]:
        """Remove and return up to `most` jobs that are due at `now`, earliest first."""
        heap = self._heap
        while most and heap and heap[0][0] <= now:
            _, job, rev = heapq.heappop(heap)
            entry = self._jobs.get(job)
            if entry is not None and entry.rev == rev:
                self.discard(job)
                most -= 1
                yield entry

    def next_due(self) -> int | None:
        return self._heap[0][0] if self._heap else None
