"""A negative cache for API keys: a flood of unknown key ids must not overload the ledger."""

from __future__ import annotations

import asyncio
import time

from fairlane.ledger.api_keys import ApiKeys

MAX_SINGLE_LOOKUPS = 100
MAX_KNOWN_NAMES = 100_000


class UnknownKeys:
    """Up to `MAX_SINGLE_LOOKUPS` ids are looked up one by one. When more come within `span`
    seconds, the ids of all keys are read once per `span`. An id that is not among them is not
    looked up."""

    def __init__(self, book: ApiKeys) -> None:
        self._book = book
        self._began, self._tried = 0.0, 0
        self._read_at, self._names = float("-inf"), frozenset[str]()
        self._reading: asyncio.Task[None] | None = None

    async def knows(self, name: str, span: float) -> bool:
        """Returns True if the id is known not to exist. A new key of another process may count as
        unknown for up to `span` seconds."""
        now = time.monotonic()
        if now - self._began > span:
            self._began, self._tried = now, 0
        self._tried += 1
        if self._tried <= MAX_SINGLE_LOOKUPS:
            return False
        if now - self._read_at > span:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
            await asyncio.shield(self._reading)  # callers share one read, and its error
        return len(self._names) <= MAX_KNOWN_NAMES and name not in self._names

    async def _read(self) -> None:
        read_at = time.monotonic()
        self._names = await self._book.names(MAX_KNOWN_NAMES + 1)
        self._read_at = read_at

    def forget(self) -> None:
        """Drops the list of ids: this process has changed a key."""
        self._read_at = float("-inf")
