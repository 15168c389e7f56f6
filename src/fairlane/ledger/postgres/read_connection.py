"""Read-only connections with a time limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from asyncpg.transaction import Transaction as Snapshot

from fairlane.errors import TookTooLong
from fairlane.ledger.messages import GIVEN_UP, QUERY_TIMEOUT_SECONDS

Connection = asyncpg.Connection | PoolConnectionProxy


def snapshot(connection: Connection) -> Snapshot:
    """A transaction in which all reads see one snapshot."""
    return connection.transaction(isolation="repeatable_read", readonly=True)


@asynccontextmanager
async def brief(
    connection: Connection, seconds: float = QUERY_TIMEOUT_SECONDS
) -> AsyncIterator[None]:
    """Run the block's queries in one snapshot and with a time limit for each, which the server
    enforces. Raises TookTooLong."""
    try:
        async with snapshot(connection):
            most = round(seconds * 1000)
            await connection.execute(f"SET LOCAL statement_timeout = {most}")
            yield
    except asyncpg.QueryCanceledError:
        raise TookTooLong(GIVEN_UP) from None
