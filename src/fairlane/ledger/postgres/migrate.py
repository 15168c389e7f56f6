"""Schema migrations are applied to PostgreSQL, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from importlib.resources.abc import Traversable

import asyncpg

from fairlane.errors import LedgerTooNew, NotSetUp
from fairlane.ledger.postgres.connect import EMBEDDED
from fairlane.ledger.postgres.read_connection import Connection

SCHEMA = resources.files("fairlane.ledger.migrations") / "postgres"

MIGRATION_LOCK = 4215
"""Advisory lock: one process migrates; the rest wait and find the schema migrated."""

MIGRATION_TIMEOUT_SECONDS = 6 * 3600.0
"""Timeout of a migration, and of the wait for another process that migrates. A migration may
rewrite or index a large table."""


async def demand_schema(pool: asyncpg.Pool) -> None:
    """Require the schema instead of creating it. Many shells export the URL of another program's
    database, so nothing is created there unless the user asks for it."""
    known = known_schema()
    found = await pool.fetchval("SELECT to_regclass('fairlane.migrations')")
    done = await pool.fetchval("SELECT max(number) FROM migrations") if found is not None else None
    if done is None:
        raise NotSetUp(
            f"this database has no Fairlane schema; make it with: fairlane migrate; {EMBEDDED}"
        )
    if done < known:
        raise NotSetUp(
            f"the ledger is at schema {done}, this Fairlane needs {known}; run: fairlane migrate"
        )
    if done > known:
        raise LedgerTooNew(
            f"the ledger is at schema {done}, this Fairlane knows {known}; upgrade it"
        )


def known_schema() -> int:
    """The number of the newest migration of this version."""
    return len(_steps())


def _steps() -> list[Traversable]:
    return sorted(
        (step for step in SCHEMA.iterdir() if step.name.endswith(".sql")),
        key=lambda step: step.name,
    )


async def migrate(pool: asyncpg.Pool) -> None:
    """Apply every migration this database has not seen, each in a transaction of its own. Processes
    that start at the same time apply each migration once."""
    steps = _steps()
    async with pool.acquire() as connection:
        async with _alone(connection):
            await connection.execute(
                "CREATE SCHEMA IF NOT EXISTS fairlane; "
                "CREATE TABLE IF NOT EXISTS fairlane.migrations (number bigint PRIMARY KEY)"
            )
        for number, step in enumerate(steps, start=1):
            async with _alone(connection):
                done = await connection.fetchval("SELECT coalesce(max(number), 0) FROM migrations")
                if done > len(steps):
                    raise LedgerTooNew(
                        f"the ledger is at schema {done}, this Fairlane knows {len(steps)}; "
                        "upgrade it"
                    )
                if number > done:
                    await connection.execute(step.read_text(), timeout=MIGRATION_TIMEOUT_SECONDS)
                    await connection.execute("INSERT INTO migrations VALUES ($1)", number)


@asynccontextmanager
async def _alone(connection: Connection) -> AsyncIterator[None]:
    """A transaction in which no other process migrates."""
    async with connection.transaction():
        await connection.execute(
            "SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK, timeout=MIGRATION_TIMEOUT_SECONDS
        )
        yield
