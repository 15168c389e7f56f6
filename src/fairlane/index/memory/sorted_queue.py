"""A sorted queue of jobs: cheap at both ends, with ranks."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry

NOBODY = Entry("", 0, "", Band.TIER, 0, -1, 0, "", "", 0)

place = attrgetter("score", "id")


class SortedQueue:
    """Almost everybody joins at the end and leaves from the front; a retry may go in between.
    `head` is who is first, or NOBODY."""

    __slots__ = ("_entries", "_front", "head")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._front = 0
        self.head = NOBODY

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
        self._entries[self._front] = NOBODY  # nobody is kept alive by a place they have left
        self._front += 1
        if self._front > 64 and self._front * 2 > len(self._entries):
            del self._entries[: self._front]
            self._front = 0
        self._look()
        return entry

    def remove(self, entry: Entry) -> None:
        del self._entries[self._front + self.ahead_of(entry)]
        self._look()

    def ahead_of(self, entry: Entry) -> int:
        """How many stand before the place of this one."""
        return bisect_left(self._entries, place(entry), lo=self._front, key=place) - self._front

    def first(self, n: int) -> list[Entry]:
        return self._entries[self._front : self._front + n]

    def copy(self, n: int) -> SortedQueue:
        """A line of the first n."""
        other = SortedQueue()
        other._entries = self.first(n)
        other._look()
        return other

    def _look(self) -> None:
        entries, front = self._entries, self._front
        self.head = entries[front] if front < len(entries) else NOBODY
