"""A step is one call to one service inside a job; a job's steps are frozen when it is submitted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from fairlane.model.service import Executor


class Lane(NamedTuple):
    """Service, allowed regions (none = any) and needed capabilities: what a worker can or cannot
    run."""

    service: str
    regions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.service}|{','.join(self.regions)}|{','.join(self.capabilities)}"

    @classmethod
    def parse(cls, name: str) -> Lane:
        service, regions, capabilities = name.split("|")
        return cls(
            service,
            tuple(regions.split(",")) if regions else (),
            tuple(capabilities.split(",")) if capabilities else (),
        )


@lru_cache(maxsize=4096)
def service_of(lane: str) -> str:
    """The service a lane's name begins with."""
    return lane.split("|", 1)[0]


def context_name(step: int, service: str) -> str:
    """Under which later steps and owners find what it made."""
    return f"step_{step}_{service}"


def attempts_name(step: int, service: str) -> str:
    return f"{context_name(step, service)}__attempts"


class RetryTerms(NamedTuple):
    """How a task is tried: what is not said here is said by the service, or the tier. Times are
    microseconds."""

    max_retries: int | None = None
    backoff: tuple[int, ...] = ()
    timeout: int = 0


class Step(NamedTuple):
    """One entry of a job's frozen plan. Times are microseconds."""

    service: str
    executor: Executor
    lane: str
    timeout: int
    max_attempts: int
    max_wait: int = 0
    backoff: tuple[int, ...] = ()
    """Pauses before the next tries, the last one again and again; none = the service's."""
    timeout_given: bool = False
    """The caller, or a worker for its task type, has set the timeout."""

    def as_list(self) -> list[Any]:
        """As it is stored. What older versions do not know stands there only if it was used."""
        known = [
            self.service,
            str(self.executor),
            self.lane,
            self.timeout,
            self.max_attempts,
            self.max_wait,
        ]
        more = [list(self.backoff), self.timeout_given]
        return [*known, *more] if self.backoff or self.timeout_given else known

    @classmethod
    def from_list(cls, values: list[Any]) -> Step:
        service, executor, lane, timeout, max_attempts, max_wait, *more = values
        backoff, timeout_given = more or ((), False)
        return cls(
            str(service),
            Executor(str(executor)),
            str(lane),
            int(timeout),
            int(max_attempts),
            int(max_wait),
            tuple(backoff),
            bool(timeout_given),
        )


Plan = tuple[Step, ...]
