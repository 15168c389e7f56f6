"""Whoever counts what happens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fairlane.ledger.shapes import Settled, Settlement, Stale, Submission, SubmitOutcome
from fairlane.model.lease import Lease


class Meter(Protocol):
    """Told after the fact, in the process that did it. Must be quick and must not fail."""

    def submitted(self, outcomes: Iterable[tuple[Submission, SubmitOutcome]]) -> None: ...

    def started(self, leases: Iterable[Lease]) -> None: ...

    def settled(self, outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None: ...

    def promoted(self, levels: Iterable[tuple[str | None, str]]) -> None:
        """Each job's level before and now; None = it was not told."""


class Silent:
    """Nobody counts."""

    def submitted(self, outcomes: Iterable[tuple[Submission, SubmitOutcome]]) -> None: ...

    def started(self, leases: Iterable[Lease]) -> None: ...

    def settled(self, outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None: ...

    def promoted(self, levels: Iterable[tuple[str | None, str]]) -> None: ...
