"""Services, the providers that host them, and the pools that limit their concurrency and rate."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fairlane.model.quality_check import QualityCheck
from fairlane.model.setting_bounds import MAX_COUNT, MAX_SECONDS, MAX_WAITING_JOBS, demand


class Executor(StrEnum):
    """The component that runs a step: the dispatcher by HTTP, a pull worker, a Celery worker, or
    the caller."""

    HTTP = "http"
    PULL = "pull"
    CELERY = "celery"
    CALLER = "caller"


class Fairness(StrEnum):
    USER = "user"
    NONE = "none"


class Affinity(StrEnum):
    RESIDENCY = "residency"
    BATCH = "batch"
    NONE = "none"


class Overrun(StrEnum):
    """When the slots of a vanished worker are freed: at the deadline of its call (strict), or with
    its lease (fast)."""

    STRICT = "strict"
    FAST = "fast"


class RetryPlace(StrEnum):
    BACK = "back"
    FRONT = "front"


class Pool(NamedTuple):
    """A limited resource in which a step needs a slot. With a window it is a rate limit: a slot
    frees itself when the window has passed, whatever happened to the job."""

    name: str
    limit: int
    window: int = 0


RATE_WINDOW_MICROSECONDS = 60_000_000
"""The sliding window of a rate limit: attempts started in the last 60 s."""


def rate_pool(pool: str) -> str:
    """The name of the pool that holds the rate limit of this pool's resource."""
    return f"rate:{pool}"


def is_rate_pool(name: str) -> bool:
    return name.startswith("rate:")


def is_service_pool(name: str) -> bool:
    """Whether this is the concurrency limit of a service, or of one of its regions."""
    return name.startswith("svc:")


def user_pool(user: str) -> str:
    """The name of the pool that holds the user's `max_running_per_user`."""
    return f"user:{user}"


def user_of_pool(name: str) -> str:
    return name.removeprefix("user:")


def is_user_pool(name: str) -> bool:
    return name.startswith("user:")


def service_of_pool(name: str) -> str | None:
    """The service that this pool limits in all its regions; None for a pool of something else."""
    kind, _, service = name.removeprefix("rate:").partition(":")
    return service if kind == "svc" and "@" not in service else None


class Shares(NamedTuple):
    """The shares of grants that skips, front retries and aged jobs may take before other waiting
    jobs, in thousandths. 1000 means no cap."""

    skip: int = 500
    front: int = 200
    aged: int = 250


@dataclass(frozen=True, slots=True)
class Region:
    name: str
    limit: int = 0

    def __post_init__(self) -> None:
        demand(f'region "{self.name}"', MAX_COUNT, limit=self.limit)


@dataclass(frozen=True, slots=True)
class Provider:
    """`rate` is attempts started per minute. 0 means no limit."""

    name: str
    limit: int = 0
    rate: int = 0

    def __post_init__(self) -> None:
        demand(f'provider "{self.name}"', MAX_COUNT, limit=self.limit, rate=self.rate)


@dataclass(frozen=True, slots=True)
class Service:
    """Times are seconds. 0 means no limit; for `timeout` and `max_attempts` it means the tier's
    value."""

    name: str
    executor: Executor = Executor.PULL
    limit: int = 0
    rate: int = 0
    waiting: int = 0
    provider: str | None = None
    regions: dict[str, Region] = field(default_factory=dict)
    timeout: float = 0
    max_wait: float = 0
    max_attempts: int = 0
    backoff: tuple[float, ...] = ()
    retry_place: RetryPlace = RetryPlace.BACK
    failover: bool = False
    overrun: Overrun | None = None
    affinity: Affinity = Affinity.RESIDENCY
    batch_size: int = 3
    fairness: Fairness = Fairness.USER
    shares: Shares = Shares(500, 200, 250)  # noqa: RUF009 - a tuple of numbers
    capabilities: frozenset[str] = frozenset()
    paused: bool = False
    model_load: float = 3.5
    quality_check: QualityCheck | None = None

    def __post_init__(self) -> None:
        whose = f'service "{self.name}"'
        demand(whose, MAX_COUNT, limit=self.limit, rate=self.rate, max_attempts=self.max_attempts)
        demand(whose, MAX_COUNT, batch_size=self.batch_size)
        demand(whose, MAX_WAITING_JOBS, waiting=self.waiting)
        demand(whose, MAX_SECONDS, timeout=self.timeout, max_wait=self.max_wait)
        demand(whose, MAX_SECONDS, model_load=self.model_load)
        for pause in self.backoff:
            demand(whose, MAX_SECONDS, backoff=pause)

    @property
    def strict(self) -> bool:
        """Whether a vanished worker's slots stay taken until its deadline. The default is true for
        called services (HTTP and Celery) and false for pull workers."""
        if self.overrun is not None:
            return self.overrun is Overrun.STRICT
        return self.executor in (Executor.HTTP, Executor.CELERY)
