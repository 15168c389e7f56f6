"""The circuit breakers of services and regions with recent failures."""

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

NO_FAILURES = CircuitBreaker()
"""The breaker of a service without recent failures. It is not stored."""


class CircuitBreakerTable:
    """Breakers by key: `service`, or `service@region`."""

    def __init__(self) -> None:
        self._breakers: dict[str, CircuitBreaker] = {}

    def __bool__(self) -> bool:
        return bool(self._breakers)

    def get(self, key: str) -> CircuitBreaker:
        return self._breakers.get(key, NO_FAILURES)

    def open_breakers(self) -> dict[str, CircuitBreaker]:
        return {key: breaker for key, breaker in self._breakers.items() if breaker.is_open}

    def admits(self, service: str, region: str | None, now: int) -> bool:
        """Whether the breakers of this service and region allow a job to be handed out now."""
        return all(self.get(key).admits(now) for key in breaker_keys(service, region))

    def let_through(self, service: str, region: str | None, token: str) -> None:
        """A job was handed out. If the breaker is open, the job is the probe."""
        for key in breaker_keys(service, region):
            self._set(key, let_through(self.get(key), token))

    def closed_by(self, calls: Iterable[ServiceCallRef]) -> bool:
        """Record that these calls were answered. Returns whether that closed a breaker."""
        closed = False
        for call in calls:
            for key in breaker_keys(call.service, call.region):
                before = self.get(key)
                self._set(key, succeeded(before, call.token))
                closed = closed or (before.is_open and not self.get(key).is_open)
        return closed

    def unavailable(
        self, call: ServiceCallRef, job: str, now: int, retry_after: int
    ) -> FailureVerdict:
        """Count a failed call, at the region if the call has one, else at the service."""
        key = breaker_keys(call.service, call.region)[-1]
        failure = failed(self.get(key), call.token, job, now, retry_after)
        self._set(key, failure.breaker)
        return failure

    def forget_probe(self, token: str) -> None:
        """The attempt of this token ended without an answer. If it was a probe, another one may be
        sent."""
        for key, breaker in list(self._breakers.items()):
            self._set(key, forget_probe(breaker, token))

    def keep_probes(self, running: Container[str]) -> None:
        """Forget the probes whose tokens are not in `running`."""
        for breaker in list(self._breakers.values()):
            if breaker.probe and breaker.probe not in running:
                self.forget_probe(breaker.probe)

    def next_probe_at(self, now: int) -> int | None:
        return min(
            (breaker.open_until for breaker in self._breakers.values() if breaker.open_until > now),
            default=None,
        )

    def _set(self, key: str, breaker: CircuitBreaker) -> None:
        if breaker == NO_FAILURES:
            self._breakers.pop(key, None)
        else:
            self._breakers[key] = breaker


def breaker_keys(service: str, region: str | None) -> tuple[str, ...]:
    return (service,) if region is None else (service, f"{service}@{region}")
