"""A step is one call to one service inside a job; a job's steps are frozen when it is submitted."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

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


class Step(NamedTuple):
    """One entry of a job's frozen plan. Times are microseconds."""

    service: str
    executor: Executor
    lane: str
    timeout: int
    max_attempts: int
    max_wait: int = 0

    def as_list(self) -> list[str | int]:
        return [
            self.service,
            str(self.executor),
            self.lane,
            self.timeout,
            self.max_attempts,
            self.max_wait,
        ]

    @classmethod
    def from_list(cls, values: list[str | int]) -> Step:
        service, executor, lane, timeout, max_attempts, max_wait = values
        return cls(
            str(service),
            Executor(str(executor)),
            str(lane),
            int(timeout),
            int(max_attempts),
            int(max_wait),
        )


Plan = tuple[Step, ...]
