"""The transactional outbox: jobs whose changes the index may not have seen yet. The writer inserts
a row with every transaction (`fast_path.py` in the statement of a submit), and deletes those that
are published; `engine/outbox_relay.py` publishes what a crash left."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.transaction import PostgresTransaction

INSERT = """INSERT INTO outbox (jobs)
SELECT :touched::text[] WHERE cardinality(:touched::text[]) > 0
RETURNING seq"""

DELETE = """DELETE FROM outbox WHERE seq IN (
    SELECT seq FROM outbox WHERE seq = ANY(:cleared::bigint[]) FOR UPDATE SKIP LOCKED)"""
"""Rows that another transaction has locked are skipped: that transaction deletes them."""

CLEAR = Statement(DELETE)


async def rows(connection: Connection, limit: int) -> list[tuple[int, list[str]]]:
    found = await connection.fetch("SELECT seq, jobs FROM outbox ORDER BY seq LIMIT $1", limit)
    return [(seq, jobs) for seq, jobs in found]


async def clear(tx: PostgresTransaction, items: Sequence[int]) -> list[None]:
    await tx.execute(*CLEAR(cleared=list(items)))
    return [None] * len(items)
