"""A step: one call to one service inside a job. A job's steps are fixed when it is submitted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from fairlane.model.quality_check import OnFail
from fairlane.model.service import Executor


class Lane(NamedTuple):
    """A service, allowed regions (none = any) and required capabilities. A worker can run all jobs
    of a lane or none."""

    service: str
    regions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.service}|{','.join(self.regions)}|{','.join(self.capabilities)}"

    def allows(self, region: str | None) -> bool:
        return not self.regions or region in self.regions

    @property
    def is_bound(self) -> bool:
        """Whether its jobs may run in one region only."""
        return len(self.regions) == 1

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
    """The service of a lane: the beginning of the lane's name."""
    return lane.split("|", 1)[0]


def context_name(step: int, service: str) -> str:
    """The key in the job's context under which later steps and the owner find this step's
    output."""
    return f"step_{step}_{service}"


def attempts_name(step: int, service: str) -> str:
    return f"{context_name(step, service)}__attempts"


class RetryTerms(NamedTuple):
    """Retry terms of a task. For terms that are not set here, the service's or the tier's hold.
    Times are microseconds."""

    max_retries: int | None = None
    backoff: tuple[int, ...] = ()
    timeout: int = 0


class Step(NamedTuple):
    """One entry of a job's fixed plan. Times are microseconds."""

    service: str
    executor: Executor
    lane: str
    timeout: int
    max_attempts: int
    max_wait: int = 0
    backoff: tuple[int, ...] = ()
    """Pauses before retries; the last one repeats. Empty means the service's backoff."""
    timeout_given: bool = False
    """Whether the caller, or a worker for its task type, set the timeout."""
    quality_check: OnFail | None = None
    """Set if this step checks the step before it: what a failed check does."""

    def as_list(self) -> list[Any]:
        """The stored form. Fields that older versions do not know are written only if they are
        set."""
        known = [
            self.service,
            str(self.executor),
            self.lane,
            self.timeout,
            self.max_attempts,
            self.max_wait,
        ]
        more = [list(self.backoff), self.timeout_given]
        if self.quality_check is not None:
            return [*known, *more, str(self.quality_check)]
        return [*known, *more] if self.backoff or self.timeout_given else known

    @classmethod
    def from_list(cls, values: list[Any]) -> Step:
        service, executor, lane, timeout, max_attempts, max_wait, *more = values
        backoff, timeout_given, *check = more or ((), False)
        return cls(
            str(service),
            Executor(str(executor)),
            str(lane),
            int(timeout),
            int(max_attempts),
            int(max_wait),
            tuple(backoff),
            bool(timeout_given),
            OnFail(str(check[0])) if check else None,
        )


Plan = tuple[Step, ...]


def delivered(plan: Plan, step: int) -> int:
    """How many steps are completed for good when a job is at this step. The check of the step
    before may still reject it, unless it only marks."""
    check = plan[step].quality_check if step < len(plan) else None
    return step if check is None or check is OnFail.MARK else step - 1
