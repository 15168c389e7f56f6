"""When more is submitted than can be written: who is asked to come back, the lowest tier first."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlane.api.problems import LONGEST, Problem

IN_A_BATCH = 0.02
"""What a job of a batch weighs beside one that comes alone."""

SMOOTH = 0.02
"""How much one submit moves the known time of a submit."""

SLOW = 0.15
"""Seconds a submit may take. When one takes longer, there are too many of them at once."""

KEPT, REGAINED = 0.875, 0.02
"""The part of the bound that a slow submit leaves, and what a quick one gives back."""

LEAST = 32
"""Under way at once, however slow they are."""


class Crowd:
    """Submits that this process has begun and not yet answered. At most `most` of them, and fewer
    while they are slow: then the bound shrinks by an eighth, and grows again with every quick one.
    The lowest tier is refused when half of the bound is reached, the best one when all of it is,
    those in between at equal steps. Nothing else is counted or refused here: what reads, cancels
    or settles passes."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._least, self._clock = most, min(LEAST, most), clock
        self._under_way, self._bound = 0.0, float(most)
        self._seconds = 0.0
        self._slow_since = clock()
        self.coming = 0
        """Let in, and not begun yet."""

    @property
    def room_for_all(self) -> bool:
        """Whether nobody would be refused, whatever their tier."""
        return self._under_way + self.coming < self._bound / 2

    def has_room(self, rank: int = 0, tiers: int = 1) -> bool:
        """Whether a submit of this tier, of so many, comes in."""
        room = self._bound * (1 - 0.5 * rank / max(1, tiers - 1))
        return self._under_way + self.coming < room

    def check(self, rank: int = 0, tiers: int = 1) -> None:
        """Raises if a submit of this tier, of so many, has to wait outside."""
        if not self.has_room(rank, tiers):
            raise self.problem()

    @contextmanager
    def inside(self, jobs: int = 1) -> Iterator[None]:
        """These count until they are answered."""
        weight = 1 + IN_A_BATCH * (jobs - 1)
        self._under_way += weight
        began = self._clock()
        try:
            yield
        finally:
            self._under_way -= weight
            self._learn(began, jobs)

    def problem(self) -> Problem:
        return Problem(
            503,
            "overloaded",
            "more is being submitted than can be written; try again later",
            headers={"Retry-After": str(self.retry_after())},
        )

    def retry_after(self) -> int:
        """Those inside now are answered after about as long as the last ones took."""
        if self._seconds < 1:
            return 1
        return max(1, min(LONGEST, round(self._seconds * random.uniform(0.8, 1.2))))

    def _learn(self, began: float, jobs: int) -> None:
        """A large batch may take long. Of those that were slow together, the first one counts."""
        now = self._clock()
        took = now - began
        self._seconds += SMOOTH * (took - self._seconds)
        if took <= SLOW:
            self._bound = min(self._most, self._bound + REGAINED)
        elif jobs == 1 and began >= self._slow_since:
            self._bound = max(self._least, self._bound * KEPT)
            self._slow_since = now
