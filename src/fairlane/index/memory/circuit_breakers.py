"""The open circuit breakers of services and regions. All others are closed."""

from __future__ import annotations

from collections.abc import Container, Iterable

from fairlane.index.index import ServiceCallRef
from fairlane.policy.circuit_breaker import (
    CircuitBreaker,
    FailureVerdict,
    failed,
    forget_probe,
    let_through,
    succeeded,
)

OPEN = CircuitBreaker()


class CircuitBreakerTable:
    def __init__(self) -> None:
        self._breakers: dict[str, CircuitBreaker] = {}

    def __bool__(self) -> bool:
        return bool(self._breakers)

    def get(self, key: str) -> CircuitBreaker:
        return self._breakers.get(key, OPEN)

    def closed(self) -> dict[str, CircuitBreaker]:
        return {key: breaker for key, breaker in self._breakers.items() if breaker.closed}

    def admits(self, service: str, region: str | None, now: int) -> bool:
        """Whether a job may be handed out there."""
        return all(self.get(key).admits(now) for key in breaker_keys(service, region))

    def let_through(self, service: str, region: str | None, token: str) -> None:
        """A job was handed out; behind a closed gate it is the probe."""
        for key in breaker_keys(service, region):
            self._set(key, let_through(self.get(key), token))

    def opened_by(self, calls: Iterable[ServiceCallRef]) -> bool:
        """The services answered. Whether that opened a gate."""
        opened = False
        for call in calls:
            for key in breaker_keys(call.service, call.region):
                before = self.get(key)
                self._set(key, succeeded(before, call.token))
                opened = opened or (before.closed and not self.get(key).closed)
        return opened

    def unavailable(
        self, call: ServiceCallRef, job: str, now: int, retry_after: int
    ) -> FailureVerdict:
        """The service did not answer: counted at its region if it has one."""
        key = breaker_keys(call.service, call.region)[-1]
        failure = failed(self.get(key), call.token, job, now, retry_after)
        self._set(key, failure.breaker)
        return failure

    def forget_probe(self, token: str) -> None:
        """The attempt ended without an answer: if it was a probe, another may look."""
        for key, breaker in list(self._breakers.items()):
            self._set(key, forget_probe(breaker, token))

    def keep_probes(self, running: Container[str]) -> None:
        """Only these tokens may still be probes."""
        for breaker in list(self._breakers.values()):
            if breaker.probe and breaker.probe not in running:
                self.forget_probe(breaker.probe)

    def next_opening(self, now: int) -> int | None:
        return min(
            (g.closed_until for g in self._breakers.values() if g.closed_until > now), default=None
        )

    def _set(self, key: str, breaker: CircuitBreaker) -> None:
        if breaker == OPEN:
            self._breakers.pop(key, None)
        else:
            self._breakers[key] = breaker


def breaker_keys(service: str, region: str | None) -> tuple[str, ...]:
    return (service,) if region is None else (service, f"{service}@{region}")
