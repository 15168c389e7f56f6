"""Store statistics of the PostgreSQL database (health metrics)."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.messages import Counts
from fairlane.ledger.postgres.migrate import known_schema
from fairlane.ledger.postgres.queries import CHECKS
from fairlane.ledger.postgres.read_connection import Connection, brief
from fairlane.ledger.postgres.retention import BUT_DEAD
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.store_stats import StoreServer, StoreSigns, StoreVerbs


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


async def server(connection: Connection) -> StoreServer:
    row = await connection.fetchrow(SERVER)
    assert row is not None  # noqa: S101 - the statement always returns one row
    settings = {name: row[name] for name in DURABILITY}
    found = await connection.fetchval("SELECT to_regclass('fairlane.migrations')")
    schema = None
    if found is not None:
        schema = await connection.fetchval("SELECT max(number) FROM fairlane.migrations")
    return StoreServer(
        "postgres",
        row["version"],
        schema,
        known_schema(),
        settings,
        read_only=row["read_only"],
        size_bytes=row["size"],
        wall_clock=row["wall_clock"],
        connections=row["connections"],
        max_connections=row["most"],
    )


async def invariants(connection: Connection, within: float) -> Counts:
    """The time limit holds for each of the counts; the caller limits their sum."""
    async with brief(connection, within):
        return Counts(**{name: await connection.fetchval(query) for name, query in CHECKS.items()})


async def overdue(
    connection: Connection, finished_before: int, dead_before: int, limit: int
) -> int:
    found: int = await connection.fetchval(OVERDUE, BUT_DEAD, finished_before, dead_before, limit)
    return found


DURABILITY = ("fsync", "full_page_writes", "synchronous_commit")

SERVER = f"""
SELECT current_setting('server_version') AS version,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on' AS read_only,
    pg_database_size(current_database()) AS size,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS wall_clock,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        AS most,
    {", ".join(f"current_setting('{name}') AS {name}" for name in DURABILITY)}
"""

OVERDUE = """
SELECT coalesce(sum(number), 0)::bigint FROM (
    SELECT number FROM rolls
    WHERE (kind = ANY($1::text[]) AND at <= $2) OR (kind = 'dead' AND at <= $3)
    ORDER BY at, seq LIMIT $4
) oldest
"""
"""The lists of ended jobs, oldest first, as retention reads them."""

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


VERBS = StoreVerbs(signs, imbalance, server, invariants, overdue)
