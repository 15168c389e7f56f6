"""Store statistics of the SQLite file (health metrics)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fairlane.ledger.sqlite.queries import CHECKS
from fairlane.ledger.sqlite.read_connection import brief
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.ledger.store_stats import StoreSigns


def signs(connection: sqlite3.Connection) -> StoreSigns:
    return StoreSigns(connection.execute("SELECT min(seq) FROM outbox").fetchone()[0])


def imbalance(connection: sqlite3.Connection) -> int:
    with brief(connection):
        return sum(
            connection.execute(CHECKS[name]).fetchone()[0]
            for name in ("unbalanced_operations", "wrong_balances")
        )


def try_to_write(tx: SqliteTransaction, items: Sequence[None]) -> list[None]:
    tx.execute("UPDATE meta SET value = value WHERE name = 'epoch'")
    return [None] * len(items)
