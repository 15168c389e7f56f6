"""Store statistics of the PostgreSQL database (health metrics)."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.postgres.queries import CHECKS
from fairlane.ledger.postgres.read_connection import Connection, brief
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.store_stats import StoreSigns


async def signs(connection: Connection) -> StoreSigns:
    ((oldest, lasts),) = await connection.fetch(SIGNS)
    dead = {row["relname"]: row["n_dead_tup"] for row in await connection.fetch(DEAD)}
    return StoreSigns(oldest, dead, lasts)


async def imbalance(connection: Connection) -> int:
    async with brief(connection):
        return sum(
            [
                await connection.fetchval(CHECKS[name])
                for name in ("unbalanced_operations", "wrong_balances")
            ]
        )


SIGNS = """
SELECT (SELECT min(seq) FROM outbox),
    (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)) * 1000000, 0)::bigint
     FROM pg_stat_activity
     WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid())
"""
"""Transactions of other roles are visible only to a role that may read all statistics."""

DEAD = """
SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'fairlane' ORDER BY relname
"""

TRY = """
INSERT INTO meta (name, value) VALUES ('tried', '')
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
"""A row of its own, so that no other transaction waits for it."""


async def try_to_write(tx: PostgresTransaction, items: Sequence[None]) -> list[None]:
    await tx.execute(TRY)
    return [None] * len(items)
