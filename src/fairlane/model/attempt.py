"""An attempt: one try at a step, under one lease."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    LOST = "lost"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class Fault(StrEnum):
    """The kind of failure that a worker reports. `policy/retry.py` decides what follows."""

    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    TRANSIENT = "transient"
    INVALID_INPUT = "invalid_input"
    SERVICE_ERROR = "service_error"
    RESULT_TOO_LARGE = "result_too_large"
    QUALITY = "quality"


def fault_named(code: str, retriable: bool) -> Fault:  # noqa: FBT001 - as it is reported
    """The fault that `code` names, in any case. If it names none, `retriable` decides."""
    with suppress(ValueError):
        return Fault(code.lower())
    return Fault.TRANSIENT if retriable else Fault.SERVICE_ERROR


@dataclass(frozen=True, slots=True)
class Attempt:
    """Written once, when the lease ends. `number` counts within the step. An attempt that cost
    nothing repeats its number. `token` is the fencing token of the lease."""

    job: str
    fence: int
    step: int
    number: int
    worker: str
    region: str | None
    started_at: int
    ended_at: int
    outcome: Outcome
    fault: Fault | None
    message: str | None
    token: str = field(default="", compare=False, repr=False)
