"""Servers that these tests may kill, and where their processes come from. Each is started once."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from fairlane.model.catalog import Catalog
from fairlane.servers import Databases, Postgres, Redis
from tests import stores
from tests.cluster.fleet import Fleet, Nursery
from tests.world import catalog

NewFleet = Callable[..., Awaitable[Fleet]]

THOROUGH = os.environ.get("FAIRLANE_THOROUGH") == "1"
"""More of the same: more seeds, more rounds, every point."""


@pytest.fixture(scope="session")
def durable_server() -> Iterator[Postgres]:
    """PostgreSQL with fsync, private to these tests. Whoever stops it starts it again."""
    with Postgres(fsync=True, in_memory=True) as server:
        yield server


@pytest.fixture
def on_postgres(postgres_server: Databases) -> Iterator[None]:
    """Worlds of this test have their ledger there, and an index of their own."""
    before, stores.present = stores.present, stores.PostgresAndMemory(postgres_server)
    yield
    stores.present = before


@pytest.fixture(scope="session")
def own_redis() -> Iterator[Redis]:
    """Redis that keeps nothing, private to these tests. Whoever stops it starts it again."""
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
async def new_fleet(
    nursery: Nursery, durable_server: Postgres, own_redis: Redis
) -> AsyncIterator[NewFleet]:
    """Makes queues of their own, on the shared servers."""
    async with AsyncExitStack() as stack:

        async def make(settings: Catalog | None = None, redis: str = "") -> Fleet:
            database = await durable_server.new_database()
            fleet = Fleet(nursery, database, redis or own_redis.url, settings or catalog())
            return await stack.enter_async_context(fleet)

        yield make
