"""Store statistics: size, age and latency of a store, for metrics and readiness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from fairlane.ledger.running import Read


class StoreSigns(NamedTuple):
    """The oldest outbox row; rows that wait to be cleaned up, by table; microseconds that the
    oldest transaction lasts which keeps them. Without the last two where the store has no such
    thing."""

    outbox: int | None = None
    dead: Mapping[str, int] | None = None
    oldest_transaction: int | None = None


class StoreWaits:
    """Tells how many seconds each transaction, or read, waited for its turn. From one thread."""

    def __init__(self) -> None:
        self.told: Callable[[float], None] = _nobody


def _nobody(_: float) -> None: ...


TRY_SECONDS = 1.0

Write = Callable[[], Coroutine[Any, Any, None]]
"""Writes something, durably."""


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
        """Raises what keeps the store from writing. Tried once a second at the most, however many
        ask."""
        now = asyncio.get_running_loop().time()
        if self._trial is None or (self._trial.done() and now - self._tried_at >= TRY_SECONDS):
            self._trial, self._tried_at = asyncio.create_task(self._write()), now
            self._trial.add_done_callback(_looked_at)
        await asyncio.shield(self._trial)

    async def signs(self) -> StoreSigns:
        found: StoreSigns = await self._read(self._signs)
        return found

    async def imbalance(self) -> int:
        """Operations that do not add up, and balances that are not their entries' sum. Reads all
        entries there are. Raises TookTooLong."""
        found: int = await self._read(self._imbalance)
        return found


def _looked_at(trial: asyncio.Task[None]) -> None:
    """Whoever asked may be gone."""
    if not trial.cancelled():
        trial.exception()
