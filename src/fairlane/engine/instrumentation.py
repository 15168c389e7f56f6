"""The instrumentation interface: what the engine reports to metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fairlane.ledger.messages import Settled, Settlement, Stale, Submission, SubmitOutcome
from fairlane.model.lease import Lease


class Instrumentation(Protocol):
    """Receives each event after it happened, in the process that caused it. An implementation must
    be quick and must not raise. Durations are in seconds."""

    def submitted(self, outcomes: Iterable[tuple[Submission, SubmitOutcome]]) -> None: ...

    def started(self, leases: Iterable[Lease], took: float) -> None:
        """`took`: the time to choose and confirm these leases, without waiting for work."""

    def foretold(self, service: str, tier: str, error: float) -> None:
        """A job has started. `error`: by how much later (earlier: below 0) than its first ETA."""

    def renewed(self, took: float) -> None: ...

    def settled(self, outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None: ...

    def expired(self, leases: int) -> None:
        """The number of expired leases that were taken back."""

    def promoted(self, levels: Iterable[tuple[str | None, str]]) -> None:
        """Each job's level before and now; None = already announced."""

    def corrected(self, jobs: int) -> None:
        """The number of jobs whose index entry differed from the ledger and was corrected."""


class NoInstrumentation:
    """Ignores everything: used when no metrics are collected."""

    def submitted(self, outcomes: Iterable[tuple[Submission, SubmitOutcome]]) -> None: ...

    def started(self, leases: Iterable[Lease], took: float) -> None: ...

    def foretold(self, service: str, tier: str, error: float) -> None: ...

    def renewed(self, took: float) -> None: ...

    def settled(self, outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None: ...

    def expired(self, leases: int) -> None: ...

    def promoted(self, levels: Iterable[tuple[str | None, str]]) -> None: ...

    def corrected(self, jobs: int) -> None: ...
