"""One try at a step, under one lease."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    LOST = "lost"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class Fault(StrEnum):
    """What kind of failure a worker reports; policy/retry.py says what each one means."""

    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    TRANSIENT = "transient"
    INVALID_INPUT = "invalid_input"
    SERVICE_ERROR = "service_error"
    RESULT_TOO_LARGE = "result_too_large"
    QUALITY = "quality"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Written once, when the lease ends. `number` counts within the step; an attempt that cost
    nothing repeats its number."""

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
