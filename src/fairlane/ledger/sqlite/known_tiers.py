"""Last known tiers in SQLite (cache table)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fairlane.ledger.known_tiers import KnownTier, TierVerbs
from fairlane.ledger.sqlite.statements import chunks, marks
from fairlane.ledger.sqlite.writer import SqliteTransaction


def _known(connection: sqlite3.Connection, tenant: str, users: Sequence[str]) -> dict[str, str]:
    return {
        user: tier
        for part in chunks(users)
        for user, tier in connection.execute(
            f"SELECT user, tier FROM known_tiers WHERE tenant = ? AND user IN ({marks(part)})",
            (tenant, *part),
        )
    }


def _know(tx: SqliteTransaction, items: Sequence[KnownTier]) -> list[None]:
    rows = [row for item in items for row in item.rows]
    tx.executemany("INSERT OR REPLACE INTO known_tiers VALUES (?, ?, ?, ?)", rows)
    return [None] * len(items)


VERBS = TierVerbs(_known, _know)
