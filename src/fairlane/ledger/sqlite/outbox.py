"""The transactional outbox: jobs whose changes the index may not have seen yet. The writer inserts
a row with every transaction, and deletes those that are published; `engine/outbox_relay.py`
publishes what a crash left."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from fairlane.ledger.rows import loads

if TYPE_CHECKING:
    from fairlane.ledger.sqlite.writer import SqliteTransaction


def insert(tx: SqliteTransaction, seq: int) -> None:
    """Names the jobs that the transaction has touched."""
    tx.execute("INSERT INTO outbox VALUES (?, ?)", (seq, orjson.dumps(tx.touched).decode()))


def rows(connection: sqlite3.Connection, limit: int) -> list[tuple[int, list[str]]]:
    found = connection.execute("SELECT seq, jobs FROM outbox ORDER BY seq LIMIT ?", (limit,))
    return [(seq, loads(jobs)) for seq, jobs in found]


def clear(tx: SqliteTransaction, items: Sequence[int]) -> list[None]:
    tx.executemany("DELETE FROM outbox WHERE seq = ?", [(item,) for item in items])
    return [None] * len(items)
