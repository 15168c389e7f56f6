"""The circuit breaker of a service or region: when failures open it, and how a probe closes it."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.attempt import Fault

OPEN_AFTER_FAILURES = 3
"""Failures in a row, from different jobs. One before, nothing more is handed out for a moment: a
service that is away hears of at most one job more than it has slots, also of the first ones."""

FIRST_DELAY_MICROSECONDS = 1_000_000
MAX_DELAY_MICROSECONDS = 60_000_000

NO_ANSWER = frozenset({Fault.UNAVAILABLE, Fault.TIMEOUT, Fault.TRANSIENT})
"""Faults that do not show whether the service is there. All others are answers."""


class CircuitBreaker(NamedTuple):
    """One service, or one of its regions. `failed` are the jobs of the present streak; closed while
    `closed_until` > 0, and only in doubt without a `delay`; `probe` is the token of the one call
    let through to look."""

    failed: tuple[str, ...] = ()
    closed_until: int = 0
    delay: int = 0
    probe: str = ""

    @property
    def closed(self) -> bool:
        return self.closed_until > 0

    @property
    def sick(self) -> bool:
        """Closed and not only in doubt, where any answer opens it and failures cost their jobs what
        they always do."""
        return self.delay > 0

    def admits(self, now: int) -> bool:
        """Whether a job may be handed out: always when open; one at a time as a probe when the
        closing time is over."""
        return not self.closed or (now >= self.closed_until and not self.probe)


class FailureVerdict(NamedTuple):
    """The gate after a failure; whether that failure is the service's fault and so costs its job
    nothing; and the earlier jobs of the streak that are forgiven with it."""

    breaker: CircuitBreaker
    free: bool
    forgiven: tuple[str, ...]


def succeeded(breaker: CircuitBreaker, token: str) -> CircuitBreaker:
    """An answer came: the streak is over; if it answered a probe, the gate opens."""
    if breaker.sick and breaker.probe != token:
        return breaker
    return CircuitBreaker()


def failed(
    breaker: CircuitBreaker, token: str, job: str, now: int, retry_after: int = 0
) -> FailureVerdict:
    """The service did not answer (refused, lost, 502/503/504, 429)."""
    if breaker.sick:
        if breaker.probe != token:
            return FailureVerdict(breaker, free=True, forgiven=())
        delay = min(MAX_DELAY_MICROSECONDS, breaker.delay * 2)
        closed = CircuitBreaker(breaker.failed, now + (retry_after or delay), delay)
        return FailureVerdict(closed, free=True, forgiven=())
    streak = (*(each for each in breaker.failed if each != job), job)
    until = now + (retry_after or FIRST_DELAY_MICROSECONDS)
    probe = forget_probe(breaker, token).probe
    if len(streak) < OPEN_AFTER_FAILURES - 1:
        return FailureVerdict(CircuitBreaker(streak), free=False, forgiven=())
    if len(streak) < OPEN_AFTER_FAILURES:
        return FailureVerdict(CircuitBreaker(streak, until, probe=probe), free=False, forgiven=())
    closed = CircuitBreaker(streak, until, FIRST_DELAY_MICROSECONDS, probe)
    return FailureVerdict(closed, free=True, forgiven=streak[:-1])


def let_through(breaker: CircuitBreaker, token: str) -> CircuitBreaker:
    """The gate when a job is handed out: behind a closed one it is the probe."""
    return breaker._replace(probe=token) if breaker.closed else breaker


def forget_probe(breaker: CircuitBreaker, token: str) -> CircuitBreaker:
    """The probe ended without an answer about the service: another one may look."""
    return breaker._replace(probe="") if breaker.probe == token else breaker
