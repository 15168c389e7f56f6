"""The instrumentation interface: what the engine reports to metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fairlane.ledger.messages import Settled, Settlement, Stale, Submission, SubmitOutcome
from fairlane.model.lease import Lease


class Instrumentation(Protocol):
    """Told after the fact, in the process that did it. Must be quick and must not fail. Durations
    are seconds."""

    def submitted(self, outcomes: Iterable[tuple[Submission, SubmitOutcome]]) -> None: ...

    def started(self, leases: Iterable[Lease], took: float) -> None:
        """How long it took to choose and confirm them, without waiting for work."""

    def foretold(self, service: str, tier: str, error: float) -> None:
        """It started, and by how much that was later or earlier (below 0) than its owner was told
        first."""

    def renewed(self, took: float) -> None: ...

    def settled(self, outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None: ...

    def expired(self, leases: int) -> None:
        """Leases that were taken back."""

    def promoted(self, levels: Iterable[tuple[str | None, str]]) -> None:
        """Each job's level before and now; None = it was not told."""

    def corrected(self, jobs: int) -> None:
        """Their place in the index was not what the ledger says."""


class NoInstrumentation:
    """Nobody counts."""

    def submitted(self, outcomes: Iterable[tuple[Submission, SubmitOutcome]]) -> None: ...

    def started(self, leases: Iterable[Lease], took: float) -> None: ...

    def foretold(self, service: str, tier: str, error: float) -> None: ...

    def renewed(self, took: float) -> None: ...

    def settled(self, outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None: ...

    def expired(self, leases: int) -> None: ...

    def promoted(self, levels: Iterable[tuple[str | None, str]]) -> None: ...

    def corrected(self, jobs: int) -> None: ...
