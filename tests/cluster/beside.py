"""Worlds on one PostgreSQL ledger, and somebody else beside them who holds what they want."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from fairlane.model.catalog import Catalog
from tests import stores
from tests.world import World


@asynccontextmanager
async def two_worlds(settings: Catalog, path: Path) -> AsyncIterator[tuple[World, World]]:
    one, two = World(settings, path), World(settings, path)
    two.starts = 1000  # ids of its own
    async with one, two:
        two.clock.advance(one.clock.now() - two.clock.now())
        yield one, two


@asynccontextmanager
async def beside(world: World) -> AsyncIterator[asyncpg.Connection]:
    """A connection of somebody else to the same database."""
    assert isinstance(stores.present, stores.PostgresAndMemory)
    url = await stores.present.database(world.path)
    connection = await asyncpg.connect(url, server_settings={"search_path": "fairlane"})
    try:
        yield connection
    finally:
        await connection.close()


async def until_waiting(
    connection: asyncpg.Connection, number: int, unless: asyncio.Task[Any] | None = None
) -> None:
    """Returns when so many transactions wait for a lock, or this one waits for none. A connection
    with a transaction of its own sees only what was so when it first looked."""
    while (await connection.fetchval(WAITING)) < number:
        if unless is not None and unless.done():
            return


WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
