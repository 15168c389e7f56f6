"""The circuit breaker of a service or region: when failures open it, and how a probe closes it."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.attempt import Fault

OPEN_AFTER_FAILURES = 3
"""Failures in a row, from different jobs, that open the breaker. One failure before that, no more
jobs are handed out for a moment, so an unavailable service gets at most one job more than it has
slots."""

FIRST_DELAY_MICROSECONDS = 1_000_000
MAX_DELAY_MICROSECONDS = 60_000_000

NO_ANSWER = frozenset({Fault.UNAVAILABLE, Fault.TIMEOUT, Fault.TRANSIENT})
"""Faults that do not show whether the service is there. All others are answers."""


class CircuitBreaker(NamedTuple):
    """The breaker of one service, or of one of its regions. `failed` are the jobs of the present
    streak. The breaker is open while `open_until` > 0; without a `delay` it is only open on
    suspicion. `probe` is the token of the one call that is let through as a test."""

    failed: tuple[str, ...] = ()
    open_until: int = 0
    delay: int = 0
    probe: str = ""

    @property
    def is_open(self) -> bool:
        return self.open_until > 0

    @property
    def confirmed(self) -> bool:
        """Whether the breaker is open, and not only on suspicion. On suspicion any response closes
        it, and failures cost their jobs an attempt as usual."""
        return self.delay > 0

    def admits(self, now: int) -> bool:
        """Whether a job may be handed out: always while the breaker is closed; one at a time,
        as a probe, after `open_until`."""
        return not self.is_open or (now >= self.open_until and not self.probe)


class FailureVerdict(NamedTuple):
    """The breaker after a failure; whether the failure was the service's fault and so costs its job
    no attempt; and the earlier jobs of the streak that get their attempt back."""

    breaker: CircuitBreaker
    free: bool
    attempts_returned: tuple[str, ...]


def succeeded(breaker: CircuitBreaker, token: str) -> CircuitBreaker:
    """The service responded: the streak is over. If the response was to a probe, the breaker
    closes."""
    if breaker.confirmed and breaker.probe != token:
        return breaker
    return CircuitBreaker()


def failed(
    breaker: CircuitBreaker, token: str, job: str, now: int, retry_after: int = 0
) -> FailureVerdict:
    """The service was unavailable (connection refused or lost, 502/503/504, 429)."""
    if breaker.confirmed:
        if breaker.probe != token:
            return FailureVerdict(breaker, free=True, attempts_returned=())
        delay = min(MAX_DELAY_MICROSECONDS, breaker.delay * 2)
        opened = CircuitBreaker(breaker.failed, now + (retry_after or delay), delay)
        return FailureVerdict(opened, free=True, attempts_returned=())
    streak = (*(each for each in breaker.failed if each != job), job)
    until = now + (retry_after or FIRST_DELAY_MICROSECONDS)
    probe = forget_probe(breaker, token).probe
    if len(streak) < OPEN_AFTER_FAILURES - 1:
        return FailureVerdict(CircuitBreaker(streak), free=False, attempts_returned=())
    if len(streak) < OPEN_AFTER_FAILURES:
        return FailureVerdict(
            CircuitBreaker(streak, until, probe=probe), free=False, attempts_returned=()
        )
    opened = CircuitBreaker(streak, until, FIRST_DELAY_MICROSECONDS, probe)
    return FailureVerdict(opened, free=True, attempts_returned=streak[:-1])


def let_through(breaker: CircuitBreaker, token: str) -> CircuitBreaker:
    """The breaker when a job is handed out: while it is open, the job is the probe."""
    return breaker._replace(probe=token) if breaker.is_open else breaker


def forget_probe(breaker: CircuitBreaker, token: str) -> CircuitBreaker:
    """The breaker when the probe ended without a response of the service: another job may probe."""
    return breaker._replace(probe="") if breaker.probe == token else breaker
