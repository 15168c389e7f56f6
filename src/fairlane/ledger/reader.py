"""The read-only ledger interface, for processes that do not own the ledger."""

from __future__ import annotations

from typing import Protocol

from fairlane.ledger.messages import Filter
from fairlane.model.attempt import Attempt
from fairlane.model.job import Job


class LedgerReader(Protocol):
    async def list_jobs(self, wanted: Filter, after: str | None, limit: int) -> list[Job]:
        """Jobs, newest first, with ids below the cursor `after`."""

    async def attempts(self, job: str) -> list[Attempt]: ...
