"""Retry and backoff: whether a failed attempt is retried, when, or becomes a dead letter."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.attempt import Fault
from fairlane.model.state import Code

MAX_BACKOFF_MICROSECONDS = 60_000_000
JITTER_THOUSANDTHS = 200
"""The largest reduction of a delay, in thousandths (jitter), so that retries do not come at
once."""

GROWTH = (3, 2)
MAX_TIMEOUT_GROWTH = 4
MAX_TIMEOUT_MICROSECONDS = 3_600_000_000

PERMANENT = {
    Fault.INVALID_INPUT: Code.INVALID_INPUT,
    Fault.SERVICE_ERROR: Code.SERVICE_ERROR,
    Fault.RESULT_TOO_LARGE: Code.RESULT_TOO_LARGE,
    Fault.QUALITY: Code.QUALITY,
}


class Retry(NamedTuple):
    """Queued again after `delay` microseconds. `attempt` is the number of attempts used."""

    delay: int
    attempt: int
    timeout: int


class Fail(NamedTuple):
    """The failure is permanent: no retry."""

    code: Code


class Bury(NamedTuple):
    """The attempts are used up: the job becomes a dead letter."""


Verdict = Retry | Fail | Bury


class Tried(NamedTuple):
    """A failed attempt. `free`: it must not cost an attempt."""

    fault: Fault
    attempt: int
    max_attempts: int
    timeout: int
    first_timeout: int
    free: bool = False


def judge(tried: Tried, jitter: int, backoff: tuple[int, ...] = ()) -> Verdict:
    """`jitter` is 0…999, drawn by the caller. `backoff` replaces the powers of two, in
    microseconds."""
    if tried.fault in PERMANENT:
        return Fail(PERMANENT[tried.fault])
    if tried.free:
        return Retry(delay(tried.attempt, jitter, backoff), tried.attempt - 1, tried.timeout)
    if tried.attempt >= tried.max_attempts:
        return Bury()
    timeout = tried.timeout
    if tried.fault is Fault.TIMEOUT:
        timeout = grown(tried.timeout, tried.first_timeout)
    return Retry(delay(tried.attempt, jitter, backoff), tried.attempt, timeout)


def delay(attempt: int, jitter: int, backoff: tuple[int, ...] = ()) -> int:
    """The backoff before the next attempt: 2ⁿ s from n = 1, at most 60 s, up to 20 % less."""
    if backoff:
        full = backoff[min(attempt, len(backoff)) - 1]
    else:
        full = min(MAX_BACKOFF_MICROSECONDS, 2 ** min(attempt, 30) * 1_000_000)
    return full - full * JITTER_THOUSANDTHS * jitter // 1_000_000


def grown(timeout: int, first: int) -> int:
    """The time limit after a timeout: half as much again, at most four times the first, never more
    than an hour (unless the first was longer)."""
    longer = timeout * GROWTH[0] // GROWTH[1]
    return max(timeout, min(longer, first * MAX_TIMEOUT_GROWTH, MAX_TIMEOUT_MICROSECONDS))
