"""A line of jobs: sorted, cheap at both ends, with ranks."""

from __future__ import annotations

from bisect import bisect_left, insort

Spot = tuple[int, str]
"""(score, job id)"""

NOBODY: Spot = (-1, "")


class Line:
    """Almost everybody joins at the end and leaves from the front; a retry may go in between.
    `head` is who is first, or NOBODY."""

    __slots__ = ("_front", "_spots", "head")

    def __init__(self) -> None:
        self._spots: list[Spot] = []
        self._front = 0
        self.head = NOBODY

    def __len__(self) -> int:
        return len(self._spots) - self._front

    def add(self, spot: Spot) -> None:
        spots = self._spots
        if not spots or spot >= spots[-1]:
            spots.append(spot)
        else:
            insort(spots, spot, lo=self._front)
        self.head = spots[self._front]

    def pop(self) -> Spot:
        spot = self.head
        self._front += 1
        if self._front > 64 and self._front * 2 > len(self._spots):
            del self._spots[: self._front]
            self._front = 0
        self._look()
        return spot

    def remove(self, spot: Spot) -> None:
        del self._spots[self._front + self.ahead_of(spot)]
        self._look()

    def ahead_of(self, spot: Spot) -> int:
        """How many stand before this spot."""
        return bisect_left(self._spots, spot, lo=self._front) - self._front

    def first(self, n: int) -> list[Spot]:
        return self._spots[self._front : self._front + n]

    def _look(self) -> None:
        spots, front = self._spots, self._front
        self.head = spots[front] if front < len(spots) else NOBODY
