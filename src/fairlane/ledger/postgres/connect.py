"""Reaching the database: what kind of server it is, and the schema it must have."""

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
"""Advisory lock: one process migrates, the others wait and find it done."""

EMBEDDED = "without DATABASE_URL (database_url) the queue needs no database"

SETTINGS = {
    "search_path": "fairlane",
    # Its own among all processes: a process ends its connections that have gone silent by it.
    "application_name": f"fairlane-{token()[:8]}",
    "jit": "off",
    # Statements are few and known, and find their rows by an index: a plan made once, while the
    # tables were empty, must do when they are large.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",  # these two read a table once for all; row by row is never much worse
    "enable_mergejoin": "off",
    # A process that stands still in the middle of a transaction, or whose machine is gone, holds up
    # everybody who waits for its locks: it loses them.
    "idle_in_transaction_session_timeout": "5s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


def plain(url: str) -> str:
    """The URL without a driver: `postgres://` and `postgresql+driver://` mean the same."""
    return re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)


CONNECT_WITHIN = 2.0
"""Seconds after which a server that does not take a connection counts as away."""

AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.OperatorInterventionError,
)
"""A server that is not there, starts, ends, or has no connection left: it may be there in a moment.
One that refuses a password stays so."""

SLOWEST_STATEMENT = 60.0
"""Seconds. A server that does not answer at all is noticed much sooner (presence.py)."""


async def connect(
    url: str, *, most: int, watched: WatchedConnections | None = None
) -> asyncpg.Pool:
    try:
        pool = await asyncpg.create_pool(
            plain(url),
            min_size=0,
            max_size=most,
            connect=(watched or WatchedConnections()).connect,
            reset=_leave,
            connection_class=WatchedConnection,
            server_settings=SETTINGS,
            timeout=CONNECT_WITHIN,
            command_timeout=SLOWEST_STATEMENT,
        )
        async with pool.acquire():  # it can be reached
            return pool
    except AWAY as error:
        what = str(error) or f"no answer within {CONNECT_WITHIN:g} s"
        raise StoreAway(f"cannot reach PostgreSQL: {what}; {EMBEDDED}") from error
    except (asyncpg.PostgresError, ValueError) as error:
        raise SetupError(f"PostgreSQL refuses: {error}; {EMBEDDED}") from error


async def _leave(_: asyncpg.Connection) -> None:
    """A connection goes back as it is: nobody changes a session, locks end with transactions."""


async def demand_durable(pool: asyncpg.Pool) -> None:
    """A server that forgets what it has confirmed loses jobs."""
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
    """Many shells carry the address of another program's database: nothing is made there unless
    somebody says so."""
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
    """Apply every step this database has not seen, each in a transaction of its own. Processes
    that start at once apply each step once."""
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
