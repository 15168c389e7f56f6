"""Servers that these tests may kill, and where their processes come from. Each is started once."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from fairlane.model.catalog import Catalog
from fairlane.servers import Databases, Postgres, Redis
from fairlane.servers.process import ServerProcess, send
from tests import stores
from tests.cluster.fleet import Fleet, Nursery
from tests.world import catalog

NewFleet = Callable[..., Awaitable[Fleet]]

THOROUGH = os.environ.get("FAIRLANE_THOROUGH") == "1"
"""More of the same: more seeds, more rounds, every point."""


@pytest.fixture(scope="session")
def _durable_server() -> Iterator[Postgres]:
    with Postgres(fsync=True, in_memory=True) as server:
        yield server


@pytest.fixture
def durable_server(_durable_server: Postgres) -> Iterator[Postgres]:
    """PostgreSQL with fsync, private to these tests. A test may stop or pause it."""
    yield _durable_server
    bring_back(_durable_server)


@pytest.fixture
def on_postgres(postgres_server: Databases) -> Iterator[None]:
    """Worlds of this test have their ledger there, and an index of their own."""
    before, stores.present = stores.present, stores.PostgresAndMemory(postgres_server)
    yield
    stores.present = before


@pytest.fixture(scope="session")
def _own_redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def own_redis(_own_redis: Redis) -> Iterator[Redis]:
    """Redis that keeps nothing, private to these tests. A test may stop or pause it."""
    yield _own_redis
    bring_back(_own_redis)


def bring_back(server: ServerProcess) -> None:
    """A test that failed while the server was down or stood still fails alone."""
    send(signal.SIGCONT, server.pids)
    if not server.pids:
        server.start()


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
