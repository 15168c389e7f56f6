"""Store statistics (health metrics): size, age and latency of a store, for metrics and
readiness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from fairlane.ledger.running import Read


class StoreSigns(NamedTuple):
    """The oldest outbox row; the number of rows that wait for vacuum, by table; and the age, in
    microseconds, of the oldest transaction that delays the vacuum. The last two are empty for a
    store without vacuum."""

    outbox: int | None = None
    dead: Mapping[str, int] | None = None
    oldest_transaction: int | None = None


class StoreWaits:
    """Reports how many seconds each transaction, or read, has waited in the queue. Not
    thread-safe."""

    def __init__(self) -> None:
        self.observe: Callable[[float], None] = _ignore


def _ignore(_: float) -> None: ...


TRY_SECONDS = 1.0

Write = Callable[[], Coroutine[Any, Any, None]]
"""Makes a durable write."""


class StoreStats:
    def __init__(
        self,
        waits: StoreWaits,
        read: Read,
        write: Write,
        signs: Callable[..., Any],
        imbalance: Callable[..., Any],
    ) -> None:
        self.waits, self._read, self._signs, self._imbalance = waits, read, signs, imbalance
        self._write = write
        self._trial: asyncio.Task[None] | None = None
        self._tried_at = 0.0

    async def demand_writable(self) -> None:
        """Raises the error that keeps the store from writing. The store is tried at most once a
        second, for any number of callers."""
        now = asyncio.get_running_loop().time()
        if self._trial is None or (self._trial.done() and now - self._tried_at >= TRY_SECONDS):
            self._trial, self._tried_at = asyncio.create_task(self._write()), now
            self._trial.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._trial)

    async def signs(self) -> StoreSigns:
        found: StoreSigns = await self._read(self._signs)
        return found

    async def imbalance(self) -> int:
        """Operations whose entries do not sum to zero, and balances that are not the sum of their
        entries. Reads all entries. Raises TookTooLong."""
        found: int = await self._read(self._imbalance)
        return found


def _retrieve_exception(trial: asyncio.Task[None]) -> None:
    """Retrieve the exception, so that asyncio does not report it if the caller was cancelled."""
    if not trial.cancelled():
        trial.exception()
