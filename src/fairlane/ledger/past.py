"""What can be read of a ledger by who does not own it."""

from __future__ import annotations

from typing import Protocol

from fairlane.ledger.shapes import Filter
from fairlane.model.attempt import Attempt
from fairlane.model.job import Job


class Past(Protocol):
    async def list_jobs(self, wanted: Filter, after: str | None, limit: int) -> list[Job]:
        """Newest first, below the id `after`."""

    async def attempts(self, job: str) -> list[Attempt]: ...
