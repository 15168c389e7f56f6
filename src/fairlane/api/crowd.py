"""When more is submitted than can be written: who is asked to come back, the lowest tier first."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fairlane.api.problems import LONGEST, Problem

IN_A_BATCH = 0.02
"""What a job of a batch weighs beside one that comes alone."""

SMOOTH = 0.02
"""How much one submit moves the known time of a submit."""


class Crowd:
    """Submits that this process has begun and not yet answered, at most `most` of them. The lowest
    tier is refused when half of that is reached, the best one when all of it is, those in between
    at equal steps. Nothing else is counted or refused here: what reads, cancels or settles passes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way = 0.0
        self._seconds = 0.0

    def check(self, rank: int = 0, tiers: int = 1) -> None:
        """Raises if a submit of this tier, of so many, has to wait outside."""
        room = self._most * (1 - 0.5 * rank / max(1, tiers - 1))
        if self._under_way >= room:
            raise self._problem()

    @contextmanager
    def inside(self, jobs: int = 1) -> Iterator[None]:
        """These count until they are answered."""
        weight = 1 + IN_A_BATCH * (jobs - 1)
        self._under_way += weight
        began = time.perf_counter()
        try:
            yield
        finally:
            self._under_way -= weight
            self._seconds += SMOOTH * (time.perf_counter() - began - self._seconds)

    def _problem(self) -> Problem:
        """Those inside now are answered after about as long as the last ones took."""
        wait = max(1, min(LONGEST, round(self._seconds * random.uniform(0.8, 1.2))))
        return Problem(
            503,
            "overloaded",
            "more is being submitted than can be written; try again later",
            headers={"Retry-After": str(wait)},
        )
