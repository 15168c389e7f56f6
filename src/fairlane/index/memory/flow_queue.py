"""The sorted queue of one flow (the jobs of one user): cheap at both ends, and it finds the
position of a job."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry

NO_ENTRY = Entry("", 0, "", Band.TIER, 0, -1, 0, "", "", 0)
"""The head of an empty queue."""

place = attrgetter("score", "id")


class FlowQueue:
    """Most jobs are added at the end and removed from the front; a retry may be inserted between.
    `head` is the first job, or NO_ENTRY."""

    __slots__ = ("_entries", "_front", "head")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._front = 0
        self.head = NO_ENTRY

    def __len__(self) -> int:
        return len(self._entries) - self._front

    def add(self, entry: Entry) -> None:
        entries = self._entries
        if not entries or place(entry) >= place(entries[-1]):
            entries.append(entry)
        else:
            insort(entries, entry, lo=self._front, key=place)
        self.head = entries[self._front]

    def pop(self) -> Entry:
        entry = self.head
        self._entries[self._front] = NO_ENTRY  # so that the job can be garbage-collected
        self._front += 1
        if self._front > 64 and self._front * 2 > len(self._entries):
            del self._entries[: self._front]
            self._front = 0
        self._update_head()
        return entry

    def remove(self, entry: Entry) -> None:
        del self._entries[self._front + self.ahead_of(entry)]
        self._update_head()

    def ahead_of(self, entry: Entry) -> int:
        """The number of jobs before the position of this one."""
        return bisect_left(self._entries, place(entry), lo=self._front, key=place) - self._front

    def first(self, n: int) -> list[Entry]:
        return self._entries[self._front : self._front + n]

    def copy(self, n: int) -> FlowQueue:
        """A queue of the first n jobs."""
        other = FlowQueue()
        other._entries = self.first(n)
        other._update_head()
        return other

    def _update_head(self) -> None:
        entries, front = self._entries, self._front
        self.head = entries[front] if front < len(entries) else NO_ENTRY
