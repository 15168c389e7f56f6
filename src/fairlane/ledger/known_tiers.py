"""A cache of users' last known tiers in the ledger: the interface that both stores implement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fairlane.ledger.running import Read, Write


class TierVerbs(NamedTuple):
    """The functions of one store: one reads, the other writes."""

    known: Callable[..., Any]
    know: Callable[..., Any]


class KnownTiers:
    """The tiers that the Priority Service last reported, kept for when it does not answer."""

    def __init__(self, write: Write, read: Read, verbs: TierVerbs) -> None:
        self._write, self._read, self._verbs = write, read, verbs

    async def get(self, tenant: str, users: Sequence[str]) -> dict[str, str]:
        """The last reported tier of each of these users that has one."""
        found: dict[str, str] = await self._read(self._verbs.known, tenant, users)
        return found

    async def put(self, tenant: str, tiers: Mapping[str, str], now: int) -> None:
        rows = [(tenant, user, tier, now) for user, tier in tiers.items()]
        await self._write(self._verbs.know, KnownTier(rows))


class KnownTier(NamedTuple):
    rows: Sequence[tuple[str, str, str, int]]
