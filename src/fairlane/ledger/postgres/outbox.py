"""The transactional outbox: jobs whose changes the index may not have seen yet. The writer inserts
a row with every transaction; `engine/outbox_relay.py` publishes what a crash left."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.transaction import PostgresTransaction


async def rows(connection: Connection, limit: int) -> list[tuple[int, list[str]]]:
    found = await connection.fetch("SELECT seq, jobs FROM outbox ORDER BY seq LIMIT $1", limit)
    return [(seq, jobs) for seq, jobs in found]


CLEAR = """
DELETE FROM outbox WHERE seq IN (
    SELECT seq FROM outbox WHERE seq = ANY($1::bigint[]) FOR UPDATE SKIP LOCKED)
"""
"""Rows that another transaction has locked are skipped: that transaction deletes them."""


async def clear(tx: PostgresTransaction, items: Sequence[int]) -> list[None]:
    await tx.execute(CLEAR, list(items))
    return [None] * len(items)
