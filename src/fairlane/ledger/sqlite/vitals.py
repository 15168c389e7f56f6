"""How the file is."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from fairlane.ledger.sqlite.reading import brief
from fairlane.ledger.sqlite.reads import CHECKS
from fairlane.ledger.vitals import Signs, Waits


class SqliteVitals:
    def __init__(self, waits: Waits, read: Callable[..., Awaitable[Any]]) -> None:
        self.waits, self._read = waits, read

    async def signs(self) -> Signs:
        found: Signs = await self._read(_signs)
        return found

    async def imbalance(self) -> int:
        found: int = await self._read(_imbalance)
        return found


def _signs(connection: sqlite3.Connection) -> Signs:
    return Signs(connection.execute("SELECT min(seq) FROM outbox").fetchone()[0])


def _imbalance(connection: sqlite3.Connection) -> int:
    with brief(connection):
        return sum(
            connection.execute(CHECKS[name]).fetchone()[0]
            for name in ("unbalanced_operations", "wrong_balances")
        )
