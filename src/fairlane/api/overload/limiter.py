"""The admission limiter: a concurrency limit on submits, with a short FIFO queue in front of it.

                 a place is free                            the response is sent
    arrives ────────────────────────────▶ running ───────────────────────────────▶ done
       │                                   ▲   │
       │ every place is taken              │   │ waited longer than its tier may
       ▼            a place becomes free   │   ▼
    waiting ───────────────────────────────┘  refused: 503 overloaded, Retry-After
       │                                       ▲
       └───────────────────────────────────────┘
         MAX_QUEUE_SECONDS are over, or the queue holds MAX_WAITING_BYTES

Only submits are limited. Reads, cancels, probes and the worker protocol are neither counted nor
refused."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from fairlane.api.http.problem_details import MAX_RETRY_AFTER_SECONDS, ProblemDetails

MAX_QUEUE_SECONDS = 0.5
"""A submit of the best tier waits for at most this long. The wait is also backpressure: a
client that ignores `Retry-After` sends at most two requests a second on a connection."""

LOWEST_TIER_WAIT = 0.5
"""A submit of the lowest tier is refused after this part of `MAX_QUEUE_SECONDS`."""

MAX_WAITING_BYTES = 16 << 20
"""The total bytes of the request bodies that may wait."""

EXPIRY_TICK_SECONDS = 0.01
BATCH_JOB_WEIGHT = 0.02
"""The weight of each further job of a batch. A single submit has weight 1."""

SUBMIT_TIME_SMOOTHING = 0.02
"""The smoothing factor of the moving average of submit times."""


class AdmissionLimiter:
    """At most `places` submits run at once in this process."""

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self._places = clock, places
        self._running = self._submit_seconds = 0.0
        self._line: deque[tuple[float, int, asyncio.Future[bool]]] = deque()
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Returns whether at least half of the places are taken."""
        return self._running >= self._places / 2

    @property
    def waiting(self) -> int:
        """The number of submits that wait."""
        return len(self._line)

    def place(self, body_bytes: int = 0) -> Place:
        """`async with` waits for a place, and frees it at the end."""
        return Place(self, body_bytes)

    def overloaded(self) -> ProblemDetails:
        return ProblemDetails(
            503,
            "overloaded",
            "more is being submitted than can be written; try again later",
            headers={"Retry-After": str(self._retry_after())},
        )

    def _retry_after(self) -> int:
        """Returns seconds: the average time of recent submits, with jitter."""
        wait = round(self._submit_seconds * random.uniform(0.8, 1.2))
        return max(1, min(MAX_RETRY_AFTER_SECONDS, wait))

    # --- the queue -------------------------------------------------------------------------------
    async def enter(self, body_bytes: int) -> float:
        """Waits for a place, and returns the seconds waited. Raises if none became free in time."""
        if self._running < self._places and not self._line:
            self._running += 1
            return 0.0
        if self._waiting_bytes + body_bytes > MAX_WAITING_BYTES:
            raise self.overloaded()
        loop, came = asyncio.get_running_loop(), self.clock()
        turn: asyncio.Future[bool] = loop.create_future()
        self._line.append((came, body_bytes, turn))
        self._waiting_bytes += body_bytes
        if self._timer is None:
            self._timer = loop.call_later(MAX_QUEUE_SECONDS, self._tick)
        try:
            is_admitted = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.leave(1)
            raise
        if not is_admitted:
            raise self.overloaded()
        return self.clock() - came

    def leave(self, weight: float, seconds: float | None = None) -> None:
        """Frees a place, and admits the next submits. `seconds` is how long the place was held."""
        self._running -= weight
        if seconds is not None:
            self._submit_seconds += SUBMIT_TIME_SMOOTHING * (seconds - self._submit_seconds)
        while self._line and self._running < self._places:
            if self._next(is_admitted=True):
                self._running += 1

    def grow(self, weight: float) -> None:
        """Adds to the weight of a running submit."""
        self._running += weight

    def expire(self) -> None:
        """Refuses the submits that have waited long enough."""
        latest = self.clock() - MAX_QUEUE_SECONDS
        while self._line and self._line[0][0] <= latest:
            self._next(is_admitted=False)

    def _next(self, *, is_admitted: bool) -> bool:
        _, body_bytes, turn = self._line.popleft()
        self._waiting_bytes -= body_bytes
        if turn.done():  # its request was cancelled
            return False
        turn.set_result(is_admitted)
        return True

    def _tick(self) -> None:
        self._timer = None
        self.expire()
        if self._line:
            loop, due = asyncio.get_running_loop(), self._line[0][0] + MAX_QUEUE_SECONDS
            seconds = max(due - self.clock(), EXPIRY_TICK_SECONDS)
            self._timer = loop.call_later(seconds, self._tick)


class Place:
    """The place of one submit, or of one batch."""

    __slots__ = ("_began", "_body_bytes", "_limiter", "_waited", "_weight")

    def __init__(self, limiter: AdmissionLimiter, body_bytes: int) -> None:
        self._limiter, self._body_bytes = limiter, body_bytes
        self._weight, self._waited, self._began = 1.0, 0.0, 0.0

    async def __aenter__(self) -> Place:
        self._waited = await self._limiter.enter(self._body_bytes)
        self._began = self._limiter.clock()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        limiter = self._limiter
        limiter.leave(self._weight, limiter.clock() - self._began)

    def check(self, rank: int, tiers: int) -> None:
        """Raises if a submit of this tier waited longer than it may. The tiers between the lowest
        and the best one differ by equal steps."""
        shorter = (1 - LOWEST_TIER_WAIT) * rank / max(1, tiers - 1)
        if rank and self._waited > MAX_QUEUE_SECONDS * (1 - shorter):
            raise self._limiter.overloaded()

    def holds(self, jobs: int) -> None:
        """Sets the weight of a batch of so many jobs."""
        more = BATCH_JOB_WEIGHT * max(0, jobs - 1)
        self._weight += more
        self._limiter.grow(more)
