"""The gates of sick services and regions. Those not named here are open."""

from __future__ import annotations

from collections.abc import Container, Iterable

from fairlane.index.index import Call
from fairlane.policy.health import Failure, Gate, failed, forget_probe, let_through, succeeded

OPEN = Gate()


class Gates:
    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def __bool__(self) -> bool:
        return bool(self._gates)

    def get(self, key: str) -> Gate:
        return self._gates.get(key, OPEN)

    def closed(self) -> dict[str, Gate]:
        return {key: gate for key, gate in self._gates.items() if gate.closed}

    def admits(self, service: str, region: str | None, now: int) -> bool:
        """Whether a job may be handed out there."""
        return all(self.get(key).admits(now) for key in gate_keys(service, region))

    def let_through(self, service: str, region: str | None, token: str) -> None:
        """A job was handed out; behind a closed gate it is the probe."""
        for key in gate_keys(service, region):
            self._set(key, let_through(self.get(key), token))

    def opened_by(self, calls: Iterable[Call]) -> bool:
        """The services answered. Whether that opened a gate."""
        opened = False
        for call in calls:
            for key in gate_keys(call.service, call.region):
                before = self.get(key)
                self._set(key, succeeded(before, call.token))
                opened = opened or (before.closed and not self.get(key).closed)
        return opened

    def unavailable(self, call: Call, job: str, now: int, retry_after: int) -> Failure:
        """The service did not answer: counted at its region if it has one."""
        key = gate_keys(call.service, call.region)[-1]
        failure = failed(self.get(key), call.token, job, now, retry_after)
        self._set(key, failure.gate)
        return failure

    def forget_probe(self, token: str) -> None:
        """The attempt ended without an answer: if it was a probe, another may look."""
        for key, gate in list(self._gates.items()):
            self._set(key, forget_probe(gate, token))

    def keep_probes(self, running: Container[str]) -> None:
        """Only these tokens may still be probes."""
        for gate in list(self._gates.values()):
            if gate.probe and gate.probe not in running:
                self.forget_probe(gate.probe)

    def next_opening(self, now: int) -> int | None:
        return min(
            (g.closed_until for g in self._gates.values() if g.closed_until > now), default=None
        )

    def _set(self, key: str, gate: Gate) -> None:
        if gate == OPEN:
            self._gates.pop(key, None)
        else:
            self._gates[key] = gate


def gate_keys(service: str, region: str | None) -> tuple[str, ...]:
    return (service,) if region is None else (service, f"{service}@{region}")
