"""Bulk actions in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fairlane.ledger.bulk_actions import BulkRow, BulkVerbs
from fairlane.ledger.sqlite.writer import SqliteTransaction

PUT = """
INSERT INTO bulk_actions (id, tenant, until, body) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (id) DO UPDATE SET until = ?3, body = ?4 WHERE bulk_actions.until = ?5
"""
AUDIT = "INSERT INTO audit (at, actor, action, target, before, after) VALUES (?, ?, ?, ?, ?, ?)"


def _get(connection: sqlite3.Connection, bulk: str, tenant: str) -> tuple[int, str] | None:
    query = "SELECT until, body FROM bulk_actions WHERE id = ? AND tenant = ?"
    row: tuple[int, str] | None = connection.execute(query, (bulk, tenant)).fetchone()
    return None if row is None else (row[0], row[1])


def _put(tx: SqliteTransaction, items: Sequence[BulkRow]) -> list[bool]:
    done = []
    for item in items:
        tx.execute("DELETE FROM bulk_actions WHERE until <= ?", (item.now,))
        row = (item.id, item.tenant, item.until, item.body, item.expected)
        done.append(tx.execute(PUT, row).rowcount > 0)
        if done[-1] and item.audit is not None:
            tx.execute(AUDIT, item.audit)
    return done


VERBS = BulkVerbs(_get, _put)
