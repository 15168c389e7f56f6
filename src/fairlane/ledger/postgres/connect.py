"""Connection pool and migrations: checks the kind of server, connects, and applies the schema."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable

import asyncpg

from fairlane.errors import LedgerTooNew, LedgerUnusable, NotSetUp, SetupError, StoreAway
from fairlane.ids import token
from fairlane.ledger.postgres.silent_connections import WatchedConnection, WatchedConnections

SCHEMA = resources.files("fairlane.ledger.migrations") / "postgres"
MIGRATION_LOCK = 4215
"""Advisory lock: one process migrates; the rest wait and find the schema migrated."""

EMBEDDED = "without DATABASE_URL (database_url) the queue needs no database"

SETTINGS = {
    "search_path": "fairlane",
    # Unique per process: a process finds its own unresponsive connections by it and ends them.
    "application_name": f"fairlane-{token()[:8]}",
    "jit": "off",
    # Statements are few and known, and find their rows by an index. Plans are cached while the
    # tables are empty and must still be good when they are large.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",  # both read whole tables; a nested loop is never much worse
    "enable_mergejoin": "off",
    # A process that hangs in the middle of a transaction, or whose machine is gone, blocks every
    # transaction that waits for its locks. The server ends such a transaction.
    "idle_in_transaction_session_timeout": "5s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


def plain(url: str) -> str:
    """The URL without a driver: `postgres://` and `postgresql+driver://` mean the same."""
    return re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)


CONNECT_WITHIN = 2.0
"""Seconds after which a server that does not accept a connection counts as unavailable."""

AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.OperatorInterventionError,
)
"""Transient errors: the server is unreachable, starting, stopping, or out of connections. A refused
password is permanent."""

SLOWEST_STATEMENT = 60.0
"""Statement timeout, in seconds. A server that does not answer at all is noticed much sooner
(process_lock.py)."""


async def connect(
    url: str, *, most: int, watched: WatchedConnections | None = None
) -> asyncpg.Pool:
    try:
        pool = await asyncpg.create_pool(
            plain(url),
            min_size=0,
            max_size=most,
            connect=(watched or WatchedConnections()).connect,
            reset=_no_reset,
            connection_class=WatchedConnection,
            server_settings=SETTINGS,
            timeout=CONNECT_WITHIN,
            command_timeout=SLOWEST_STATEMENT,
        )
        async with pool.acquire():  # proves that the server can be reached
            return pool
    except AWAY as error:
        what = str(error) or f"no answer within {CONNECT_WITHIN:g} s"
        raise StoreAway(f"cannot reach PostgreSQL: {what}; {EMBEDDED}") from error
    except (asyncpg.PostgresError, ValueError) as error:
        raise SetupError(f"PostgreSQL refuses: {error}; {EMBEDDED}") from error


async def _no_reset(_: asyncpg.Connection) -> None:
    """Return a connection to the pool without a reset: no code changes session state, and locks end
    with their transactions."""


async def demand_durable(pool: asyncpg.Pool) -> None:
    """Refuse a server with unsafe durability settings: it could lose committed jobs."""
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        value = await pool.fetchval(f"SHOW {setting}")
        if value == "off":
            raise SetupError(
                f"PostgreSQL runs with {setting} = off and may lose accepted jobs; "
                "switch it on, or say that losing jobs is fine (unsafe)"
            )


def explained(error: Exception) -> LedgerUnusable | None:
    """What is wrong with the server, if it cannot write."""
    if isinstance(error, asyncpg.DiskFullError):
        return LedgerUnusable("the disk of PostgreSQL is full; make room there and start again")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return LedgerUnusable(
            "PostgreSQL takes no writes: this is a replica, or it was made read-only; "
            "use the address of the primary server"
        )
    return None


async def demand_schema(pool: asyncpg.Pool) -> None:
    """Require the schema instead of creating it. Many shells export the URL of another program's
    database, so nothing is created there unless the user asks for it."""
    known = len(_steps())
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
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        try:
            await connection.execute(
                "CREATE SCHEMA IF NOT EXISTS fairlane; "
                "CREATE TABLE IF NOT EXISTS fairlane.migrations (number bigint PRIMARY KEY)"
            )
            done = await connection.fetchval("SELECT coalesce(max(number), 0) FROM migrations")
            if done > len(steps):
                raise LedgerTooNew(
                    f"the ledger is at schema {done}, this Fairlane knows {len(steps)}; upgrade it"
                )
            for number, step in enumerate(steps, start=1):
                if number > done:
                    async with connection.transaction():
                        await connection.execute(step.read_text())
                        await connection.execute("INSERT INTO migrations VALUES ($1)", number)
        finally:
            await connection.execute("SELECT pg_advisory_unlock($1)", MIGRATION_LOCK)
