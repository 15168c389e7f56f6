"""The admission limiter: an adaptive concurrency limit (AIMD) on submits. The lowest tier is
refused first."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from fairlane.api.http.problem_details import MAX_RETRY_AFTER_SECONDS, ProblemDetails

BATCH_JOB_WEIGHT = 0.02
"""What a job of a batch weighs beside one that comes alone."""

SUBMIT_TIME_SMOOTHING = 0.02
"""How much one submit moves the known time of a submit."""

SUBMITS_PER_LOOP_TURN = 8
"""That begin in one turn of the loop: whoever is heard in between does not wait for all of them."""

TARGET_WAIT_SECONDS = 0.1
"""Seconds until a submit begins. When one waits longer, there are too many of them at once."""

KEPT, REGAINED = 0.875, 0.02
"""The part of the bound that a slow one leaves, and what a quick one gives back."""

MIN_CONCURRENT_SUBMITS = 32
"""Under way at once, however slow they are."""


class AdmissionLimiter:
    """Submits that this process has let in and not yet answered. At most `most` of them, and fewer
    while they wait long before they begin: then the bound shrinks by an eighth, and grows again
    with every quick one. The lowest tier is refused when half of the bound is reached, the best one
    when all of it is, those in between at equal steps. Nothing else is counted or refused here:
    what reads, cancels or settles passes."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._least, self._clock = most, min(MIN_CONCURRENT_SUBMITS, most), clock
        self._under_way, self._bound = 0.0, float(most)
        self._seconds = 0.0
        self._slow_since = clock()
        self._coming: deque[tuple[float, Callable[[], object]]] = deque()

    @property
    def room_for_all(self) -> bool:
        """Whether nobody would be refused, whatever their tier."""
        return self._under_way < self._bound / 2

    def has_room(self, rank: int = 0, tiers: int = 1) -> bool:
        """Whether a submit of this tier, of so many, comes in."""
        return self._under_way < self._bound * (1 - 0.5 * rank / max(1, tiers - 1))

    def check(self, rank: int = 0, tiers: int = 1) -> None:
        """Raises if a submit of this tier, of so many, has to wait outside."""
        if not self.has_room(rank, tiers):
            raise self.problem()

    @contextmanager
    def inside(self, jobs: int = 1) -> Iterator[None]:
        """These count until they are answered."""
        weight, came = 1 + BATCH_JOB_WEIGHT * (jobs - 1), self._clock()
        self._under_way += weight
        try:
            yield
        finally:
            self._leave(weight, came)

    def let_in(self, begin: Callable[[Callable[[], None]], object]) -> None:
        """One that counts from now on. It begins when those before it have, and says when it is
        answered."""
        came = self._clock()
        self._under_way += 1
        self._coming.append((came, partial(begin, partial(self._leave, 1, came))))
        if len(self._coming) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def begin(self) -> None:
        """Some of those that were let in."""
        now = self._clock()
        for _ in range(min(SUBMITS_PER_LOOP_TURN, len(self._coming))):
            came, begin = self._coming.popleft()
            self._learn(came, now)
            begin()

    def _turn(self) -> None:
        try:
            self.begin()
        finally:
            if self._coming:
                asyncio.get_running_loop().call_soon(self._turn)

    def _leave(self, weight: float, came: float) -> None:
        self._under_way -= weight
        self._seconds += SUBMIT_TIME_SMOOTHING * (self._clock() - came - self._seconds)

    def problem(self) -> ProblemDetails:
        return ProblemDetails(
            503,
            "overloaded",
            "more is being submitted than can be written; try again later",
            headers={"Retry-After": str(self.retry_after())},
        )

    def retry_after(self) -> int:
        """Those inside now are answered after about as long as the last ones took."""
        if self._seconds < 1:
            return 1
        return max(1, min(MAX_RETRY_AFTER_SECONDS, round(self._seconds * random.uniform(0.8, 1.2))))

    def _learn(self, came: float, now: float) -> None:
        """Of those that waited together, the first one counts."""
        if now - came <= TARGET_WAIT_SECONDS:
            self._bound = min(self._most, self._bound + REGAINED)
        elif came >= self._slow_since:
            self._bound = max(self._least, self._bound * KEPT)
            self._slow_since = now
