"""Bulk actions in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.bulk_actions import BulkRow, BulkVerbs
from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.transaction import PostgresTransaction

RUN_OUT = """
DELETE FROM bulk_actions WHERE id IN (
    SELECT id FROM bulk_actions WHERE until <= $1 FOR UPDATE SKIP LOCKED)
"""
PUT = """
INSERT INTO bulk_actions (id, tenant, until, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET until = $3, body = $4 WHERE bulk_actions.until = $5
RETURNING 1
"""
AUDIT = """
INSERT INTO audit (at, actor, action, target, before, after) VALUES ($1, $2, $3, $4, $5, $6)
"""


async def _get(connection: Connection, bulk: str, tenant: str) -> tuple[int, str] | None:
    query = "SELECT until, body FROM bulk_actions WHERE id = $1 AND tenant = $2"
    row = await connection.fetchrow(query, bulk, tenant)
    return None if row is None else (row["until"], row["body"])


async def _put(tx: PostgresTransaction, items: Sequence[BulkRow]) -> list[bool]:
    done: dict[int, bool] = {}
    for i, item in sorted(enumerate(items), key=lambda each: each[1].id):
        await tx.execute(RUN_OUT, item.now)
        row = (item.id, item.tenant, item.until, item.body, item.expected)
        done[i] = await tx.fetchval(PUT, *row) is not None
        if done[i] and item.audit is not None:
            await tx.execute(AUDIT, *item.audit)
    return [done[i] for i in range(len(items))]


VERBS = BulkVerbs(_get, _put)
