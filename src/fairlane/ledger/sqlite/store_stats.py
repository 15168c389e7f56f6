"""Store statistics of the SQLite file (health metrics)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from fairlane.ledger.messages import Counts
from fairlane.ledger.sqlite.migrate import known_schema
from fairlane.ledger.sqlite.queries import CHECKS, check
from fairlane.ledger.sqlite.read_connection import brief
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.ledger.store_stats import StoreServer, StoreSigns, StoreVerbs


def signs(connection: sqlite3.Connection) -> StoreSigns:
    return StoreSigns(connection.execute("SELECT min(seq) FROM outbox").fetchone()[0])


def imbalance(connection: sqlite3.Connection) -> int:
    with brief(connection):
        return sum(
            connection.execute(CHECKS[name]).fetchone()[0]
            for name in ("unbalanced_operations", "wrong_balances")
        )


def server(connection: sqlite3.Connection) -> StoreServer:
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    ((_, _, file),) = connection.execute("PRAGMA database_list").fetchall()
    path = Path(file)
    disk = os.statvfs(path)
    return StoreServer(
        "sqlite",
        sqlite3.sqlite_version,
        schema or None,
        known_schema(),
        {"journal_mode": journal},
        read_only=not os.access(path, os.W_OK),
        size_bytes=path.stat().st_size,
        free_bytes=disk.f_bavail * disk.f_frsize,
        disk_bytes=disk.f_blocks * disk.f_frsize,
    )


def invariants(connection: sqlite3.Connection, within: float) -> Counts:
    with brief(connection, within):
        return check(connection)


def overdue(
    connection: sqlite3.Connection, finished_before: int, dead_before: int, limit: int
) -> int:
    query = (
        "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE finished_at <= ? "
        "AND (state <> 'dead' OR finished_at <= ?) LIMIT ?)"
    )
    with brief(connection):
        (found,) = connection.execute(query, (finished_before, dead_before, limit)).fetchone()
    return int(found)


def try_to_write(tx: SqliteTransaction, items: Sequence[None]) -> list[None]:
    tx.execute("UPDATE meta SET value = value WHERE name = 'epoch'")
    return [None] * len(items)


VERBS = StoreVerbs(signs, imbalance, server, invariants, overdue)
