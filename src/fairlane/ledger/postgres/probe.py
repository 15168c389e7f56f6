"""A look at a PostgreSQL server before a process serves it (preflight check)."""

from __future__ import annotations

from fairlane.ledger.api_keys import MAX_KEYS
from fairlane.ledger.postgres import api_keys
from fairlane.ledger.postgres.connect import connect
from fairlane.ledger.postgres.store_stats import server
from fairlane.ledger.store_stats import StoreProbe


async def probe(url: str) -> StoreProbe:
    """The server and the keys in it. Raises StoreAway or SetupError."""
    pool = await connect(url, most=1)
    try:
        async with pool.acquire() as connection:
            found = await server(connection)
            keys = []
            if found.schema == found.known_schema:
                keys = await api_keys.VERBS.page(connection, None, MAX_KEYS)
            return StoreProbe(found, keys)
    finally:
        await pool.close()
