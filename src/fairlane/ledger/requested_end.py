"""The end of living jobs by a request: a cancel, or the stop of a fan-out after a failed cell."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.event import EventType, Fact
from fairlane.model.job import Band, Job
from fairlane.model.state import Code, State


class RequestedEnd(NamedTuple):
    state: State
    code: Code | None = None
    message: str | None = None

    def fact(self, now: int) -> Fact:
        if self.code is None:
            return Fact(EventType.JOB_CANCELLED, now, {})
        return Fact(EventType.JOB_FAILED, now, {"code": self.code})

    def refunds(self, job: Job) -> bool:
        """Whether a paid skip of the job is refunded. After a cancel, the owner of a job beyond its
        first step can read an output."""
        delivered = job.step if self.state is State.CANCELLED else job.delivered
        return job.band is Band.SKIP and delivered == 0


CANCELLED = RequestedEnd(State.CANCELLED)
STOPPED = RequestedEnd(
    State.FAILED, Code.STOPPED, "another execution failed; retry-failed runs this one, too"
)
