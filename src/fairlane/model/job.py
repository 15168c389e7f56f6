"""A job: the request to run it, and its row in the ledger."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from fairlane.model.fanout import OnCellFailure
from fairlane.model.state import LIVE, RESUMABLE, Code, State
from fairlane.model.step import Plan, Step, delivered

Json = Any
"""Any JSON value. It is stored as text and returned parsed."""


class Band(IntEnum):
    """The band of a waiting job: paid skips first, then retries at the front, then its tier."""

    SKIP = 0
    FRONT = 1
    TIER = 2


class NewJob(NamedTuple):
    """A request to run a job, after validation. `tier` is set only if the caller may choose it.
    `matrix` makes the job a fan-out with one execution per combination; `on_cell_failure` says
    whether its other executions go on when one has failed. `max_retries` None means the worker's,
    service's or tier's value. `backoff` is the list of pauses before retries; the
    last one repeats. Times are microseconds."""

    name: str
    input: Json = None
    user: str | None = None
    tier: str | None = None
    model: str = ""
    duration: float = 0
    regions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    matrix: dict[str, tuple[str, ...]] | None = None
    run_at: int | None = None
    timeout: int = 0
    max_wait: int = 0
    callback: str | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None
    idempotency_key: str | None = None
    max_retries: int | None = None
    backoff: tuple[int, ...] = ()
    on_cell_failure: OnCellFailure = OnCellFailure.CONTINUE


class Error(NamedTuple):
    code: Code
    message: str

    @property
    def resumable(self) -> bool:
        return self.code in RESUMABLE


class Progress(NamedTuple):
    percent: float
    text: str
    at: int


class Job(NamedTuple):
    """One row of the ledger. Times are microseconds."""

    id: str
    tenant: str
    key: str
    user: str | None
    name: str
    state: State
    plan: Plan
    step: int
    model: str
    duration: float
    tier: str
    level: str
    promoted_at: int | None
    band: Band
    paid_at: int
    rev: int
    seq: int
    written: int
    attempt: int
    timeout: int
    lane: str
    token: str | None
    fence: int
    worker: str | None
    region: str | None
    lease_until: int | None
    deadline: int | None
    started_at: int | None
    waited: int
    ready_at: int
    created_at: int
    finished_at: int | None
    error: Error | None
    progress: Progress | None
    parent: str | None
    cell: dict[str, str] | None
    cells: int
    cells_left: int
    tags: tuple[str, ...]
    callback: str | None
    trace: str | None
    on_cell_failure: OnCellFailure = OnCellFailure.CONTINUE

    @property
    def current(self) -> Step:
        """The current step. A finished job is at its last step."""
        return self.plan[min(self.step, len(self.plan) - 1)]

    @property
    def delivered(self) -> int:
        """How many steps are completed for good: a step counts once its check can no longer reject
        it."""
        return delivered(self.plan, self.step)

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def fan_out(self) -> bool:
        return self.cells > 0

    @property
    def shown_progress(self) -> Progress | None:
        """The progress that the job's owner sees. That of a fan-out counts its ended cells."""
        if not self.fan_out:
            return self.progress
        ended = self.cells - self.cells_left
        percent = round(100 * ended / self.cells, 1)
        return Progress(percent, f"{ended} of {self.cells} executions have ended", self.created_at)

    def waited_until(self, now: int) -> int:
        """Total time in the queue so far, over all steps and attempts."""
        if self.state is State.QUEUED:
            return self.waited + max(0, now - self.ready_at)
        return self.waited


@lru_cache(maxsize=16_384)
def fair_user(tenant: str, user: str | None, key: str) -> str:
    """The user whose fair share a job uses. All jobs of one API key that name no user count as one
    user."""
    return f"{tenant}:u:{user}" if user is not None else f"{tenant}:k:{key}"
