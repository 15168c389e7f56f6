"""A lease, its fencing token and its slots: which worker runs which step of a job, and until
when."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.job import Band, Json
from fairlane.model.service import is_service_pool
from fairlane.model.step import Plan, Step, context_name, delivered


class Slot(NamedTuple):
    """One place in a pool. With `until` (a rate limit) the slot frees itself at that time,
    otherwise with its lease."""

    pool: str
    n: int
    until: int = 0


def service_slot(slots: tuple[Slot, ...]) -> int:
    """The number of the slot in the service's most specific pool: of its region, if that has a
    limit. 0 without a limit."""
    own = [slot.n for slot in slots if is_service_pool(slot.pool)]
    return own[-1] if own else 0


class Lease(NamedTuple):
    """A confirmed claim, handed to one worker. `attempt` counts from 1 within the step, `fence`
    over the job's whole life. Times are microseconds."""

    job: str
    token: str
    fence: int
    rev: int
    name: str
    plan: Plan
    step: int
    attempt: int
    input: Json
    context: dict[str, Json]
    tenant: str
    user: str
    tier: str
    level: str
    model: str
    region: str | None
    worker: str
    cost: int
    started_at: int
    lease_until: int
    deadline: int
    queued_at: int
    waited: int
    seq: int
    written: int
    lane: str
    band: Band
    paid_at: int
    parent: str | None
    trace: str | None
    slot: int = 0
    """The slot of the service that a job with a model runs in, counted from 1; 0 = none."""

    @property
    def skipped(self) -> bool:
        return self.paid_at > 0

    @property
    def at(self) -> Step:
        return self.plan[self.step]

    @property
    def service(self) -> str:
        return self.plan[self.step].service

    @property
    def delivered(self) -> int:
        return delivered(self.plan, self.step)

    @property
    def checked_step(self) -> str | None:
        """The name of the output that this step checks, in the context; None if it is no quality
        check."""
        if self.at.quality_check is None:
            return None
        return context_name(self.step - 1, self.plan[self.step - 1].service)

    @property
    def last_step(self) -> bool:
        return self.step + 1 == len(self.plan)
