"""Connection pool: checks the server's settings, connects, and explains errors."""

from __future__ import annotations

import re
from typing import Any

import asyncpg

from fairlane.errors import LedgerUnusable, SetupError, StoreAway
from fairlane.ids import token
from fairlane.ledger.postgres.silent_connections import WatchedConnection, WatchedConnections

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
    "idle_in_transaction_session_timeout": "5000",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

POOLER_SETTINGS = {
    name: value
    for name, value in SETTINGS.items()
    if name != "application_name" and not name.startswith("tcp_")
}
"""A pooler shares its sessions between clients, so it has to make these settings itself."""

CONNECT_QUERY = "; ".join(f"SET {name} = {value}" for name, value in POOLER_SETTINGS.items())


def plain(url: str) -> str:
    """The URL without a driver: `postgres://` and `postgresql+driver://` mean the same."""
    return re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)


CONNECT_WITHIN = 2.0
"""Seconds after which a server that does not accept a connection counts as unavailable."""

AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.TargetServerAttributeNotMatched,
)
"""Transient errors: the server is unreachable, starting, stopping, or out of connections, memory or
disk, or none of several servers is the primary. A refused password is permanent."""

SLOWEST_STATEMENT = 60.0
"""Statement timeout, in seconds. A server that does not answer at all is noticed much sooner
(process_lock.py)."""


def session_options(*, pooled: bool) -> dict[str, Any]:
    """Options of a connection. A pooler in transaction mode takes no settings, and a prepared
    statement may be gone in the next transaction."""
    if not pooled:
        return {"server_settings": SETTINGS}
    name = {"application_name": SETTINGS["application_name"]}
    return {"server_settings": name, "statement_cache_size": 0}


async def connect(
    url: str, *, most: int, watched: WatchedConnections | None = None
) -> asyncpg.Pool:
    """A pool of connections. Sets `watched.pooled` if they lead to a pooler."""
    try:
        return await _reachable(url, most, watched or WatchedConnections())
    except AWAY as error:
        what = str(error) or f"no answer within {CONNECT_WITHIN:g} s"
        raise StoreAway(f"cannot reach PostgreSQL: {what}; {EMBEDDED}") from error
    except (asyncpg.PostgresError, ValueError) as error:
        raise SetupError(f"PostgreSQL refuses: {error}; {EMBEDDED}") from error


async def _reachable(url: str, most: int, watched: WatchedConnections) -> asyncpg.Pool:
    """A pool that has been connected once."""
    pool = await _pool(url, most, watched)
    try:
        watched.pooled = await _is_pooled(pool)
        if watched.pooled:
            pool.terminate()
            pool = await _pool(url, most, watched)
            await _demand_settings(pool)
    except BaseException:
        pool.terminate()
        raise
    return pool


async def _pool(url: str, most: int, watched: WatchedConnections) -> asyncpg.Pool:
    return await asyncpg.create_pool(
        plain(url),
        min_size=0,
        max_size=most,
        connect=watched.connect,
        reset=_no_reset,
        connection_class=WatchedConnection,
        timeout=CONNECT_WITHIN,
        command_timeout=SLOWEST_STATEMENT,
        **session_options(pooled=watched.pooled),
    )


async def _is_pooled(pool: asyncpg.Pool) -> bool:
    """Whether a pooler stands between. It refuses our settings, unless it was told to ignore them,
    and it gives its clients process ids of its own."""
    try:
        async with pool.acquire() as connection:
            pid = await connection.fetchval("SELECT pg_backend_pid()", timeout=CONNECT_WITHIN)
            return bool(pid != connection.get_server_pid())
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" in str(error):
            return True
        raise


async def _demand_settings(pool: asyncpg.Pool) -> None:
    """Refuse a pooler whose sessions lack our settings."""
    for name, wanted in POOLER_SETTINGS.items():
        value = await pool.fetchval("SELECT setting FROM pg_settings WHERE name = $1", name)
        if value != wanted:
            raise SetupError(
                f"the pooler in front of PostgreSQL has sessions with {name} = {value}; add this "
                f"to the line of the database in pgbouncer.ini: connect_query='{CONNECT_QUERY}'"
            )


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
