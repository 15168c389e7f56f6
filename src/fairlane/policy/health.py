"""A sick service is not a sick job: when a gate closes for everybody, and how it opens again."""

from __future__ import annotations

from typing import NamedTuple

CLOSE_AFTER = 3
"""Failures in a row, from different jobs. One before, nothing more is handed out for a moment: a
service that is away hears of at most one job more than it has slots, also of the first ones."""

FIRST_DELAY = 1_000_000
LONGEST_DELAY = 60_000_000


class Gate(NamedTuple):
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


class Failure(NamedTuple):
    """The gate after a failure; whether that failure is the service's fault and so costs its job
    nothing; and the earlier jobs of the streak that are forgiven with it."""

    gate: Gate
    free: bool
    forgiven: tuple[str, ...]


def succeeded(gate: Gate, token: str) -> Gate:
    """An answer came: the streak is over; if it answered a probe, the gate opens."""
    if gate.sick and gate.probe != token:
        return gate
    return Gate()


def failed(gate: Gate, token: str, job: str, now: int, retry_after: int = 0) -> Failure:
    """The service did not answer (refused, lost, 502/503/504, 429)."""
    if gate.sick:
        if gate.probe != token:
            return Failure(gate, free=True, forgiven=())
        delay = min(LONGEST_DELAY, gate.delay * 2)
        closed = Gate(gate.failed, now + (retry_after or delay), delay)
        return Failure(closed, free=True, forgiven=())
    streak = (*(each for each in gate.failed if each != job), job)
    until = now + (retry_after or FIRST_DELAY)
    probe = forget_probe(gate, token).probe
    if len(streak) < CLOSE_AFTER - 1:
        return Failure(Gate(streak), free=False, forgiven=())
    if len(streak) < CLOSE_AFTER:
        return Failure(Gate(streak, until, probe=probe), free=False, forgiven=())
    closed = Gate(streak, until, FIRST_DELAY, probe)
    return Failure(closed, free=True, forgiven=streak[:-1])


def let_through(gate: Gate, token: str) -> Gate:
    """The gate when a job is handed out: behind a closed one it is the probe."""
    return gate._replace(probe=token) if gate.closed else gate


def forget_probe(gate: Gate, token: str) -> Gate:
    """The probe ended without an answer about the service: another one may look."""
    return gate._replace(probe="") if gate.probe == token else gate
