"""How a store itself is, for whoever watches over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairlane.ledger.running import Read


class Signs(NamedTuple):
    """The oldest outbox row; rows that wait to be cleaned up, by table; microseconds that the
    oldest transaction lasts which keeps them. Without the last two where the store has no such
    thing."""

    outbox: int | None = None
    dead: Mapping[str, int] | None = None
    oldest_transaction: int | None = None


class Waits:
    """Tells how many seconds each transaction, or read, waited for its turn. From one thread."""

    def __init__(self) -> None:
        self.told: Callable[[float], None] = _nobody


def _nobody(_: float) -> None: ...


class Vitals:
    def __init__(
        self, waits: Waits, read: Read, signs: Callable[..., Any], imbalance: Callable[..., Any]
    ) -> None:
        self.waits, self._read, self._signs, self._imbalance = waits, read, signs, imbalance

    async def signs(self) -> Signs:
        found: Signs = await self._read(self._signs)
        return found

    async def imbalance(self) -> int:
        """Operations that do not add up, and balances that are not their entries' sum. Reads all
        entries there are. Raises TookTooLong."""
        found: int = await self._read(self._imbalance)
        return found
