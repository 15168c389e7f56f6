"""What is scarce: services, the providers that host them, and the pools that limit both."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fairlane.model.setting_bounds import MAX_COUNT, MAX_SECONDS, MAX_WAITING_JOBS, demand


class Executor(StrEnum):
    """Who runs a step: our dispatcher by HTTP, a worker that pulls, a Celery fleet, the caller."""

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
    """What becomes of the slots of a worker that vanished: kept until its call must be over, or
    freed with the lease."""

    STRICT = "strict"
    FAST = "fast"


class RetryPlace(StrEnum):
    BACK = "back"
    FRONT = "front"


class Pool(NamedTuple):
    """Anything with a limit that a step needs a slot in. With a window it is a rate: a slot is
    free again when the window has passed, whatever became of the job."""

    name: str
    limit: int
    window: int = 0


RATE_WINDOW_MICROSECONDS = 60_000_000
"""A rate counts grants in the last minute."""


def rate_pool(pool: str) -> str:
    """The pool behind a rate on what this pool limits."""
    return f"rate:{pool}"


def is_rate_pool(name: str) -> bool:
    return name.startswith("rate:")


def user_pool(user: str) -> str:
    """The pool behind `max_running_per_user`."""
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
    """The most that skips, front retries and aged work may take from what better-born or fresh
    work leaves, in thousandths of the grants; 1000 = no cap."""

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
    """`rate` is grants per minute; 0 means no limit."""

    name: str
    limit: int = 0
    rate: int = 0

    def __post_init__(self) -> None:
        demand(f'provider "{self.name}"', MAX_COUNT, limit=self.limit, rate=self.rate)


@dataclass(frozen=True, slots=True)
class Service:
    """Times are seconds; 0 means no limit, or, for `timeout` and `max_attempts`, the tier's."""

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

    def __post_init__(self) -> None:
        whose = f'service "{self.name}"'
        demand(whose, MAX_COUNT, limit=self.limit, rate=self.rate, max_attempts=self.max_attempts)
        demand(whose, MAX_COUNT, batch_size=self.batch_size)
        demand(whose, MAX_WAITING_JOBS, waiting=self.waiting)
        demand(whose, MAX_SECONDS, timeout=self.timeout, max_wait=self.max_wait)
        for pause in self.backoff:
            demand(whose, MAX_SECONDS, backoff=pause)

    @property
    def strict(self) -> bool:
        """Called services keep the slots of a vanished worker; pull workers give them up."""
        if self.overrun is not None:
            return self.overrun is Overrun.STRICT
        return self.executor is Executor.HTTP
