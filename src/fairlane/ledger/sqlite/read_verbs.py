"""Read verbs of the SQLite ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from fairlane.ledger.messages import Filter
from fairlane.ledger.sqlite import queries
from fairlane.model.attempt import Attempt
from fairlane.model.event import Event
from fairlane.model.job import Job, Json
from fairlane.model.state import State

T = TypeVar("T")


class SqliteReadVerbs(ABC):
    @abstractmethod
    async def _read(self, query: Callable[..., T], *args: object) -> T:
        """What the query finds."""

    async def jobs(self, ids: Sequence[str]) -> dict[str, Job]:
        return await self._read(queries.jobs, ids)

    async def fate(self, job: str, owner: str | None) -> str | None:
        return await self._read(queries.fate, job, owner)

    async def list_jobs(self, wanted: Filter, after: str | None, limit: int) -> list[Job]:
        return await self._read(queries.list_jobs, wanted, after, limit)

    async def payload(self, job: str) -> tuple[Json, dict[str, Json]]:
        return await self._read(queries.payload, job)

    async def attempts(self, job: str) -> list[Attempt]:
        return await self._read(queries.attempts, job)

    async def events(self, job: str, after: int) -> list[Event]:
        return await self._read(queries.events, job, after)

    async def count(self, state: State, tenant: str | None = None) -> int:
        return await self._read(queries.count, state, tenant)

    async def running_in(self) -> Counter[tuple[str, str | None]]:
        return await self._read(queries.running_in)

    async def finished_since(self, since: int) -> dict[State, int]:
        return await self._read(queries.finished_since, since)
