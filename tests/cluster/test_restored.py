"""I38: PostgreSQL is restored from a backup. Earlier leases are refused, and the index that Redis
kept is built anew."""

from __future__ import annotations

import pytest

from fairlane.compose import cluster
from fairlane.engine import Engine
from fairlane.errors import LedgerInUse, StaleLease
from fairlane.ledger.postgres.restored import refuse_earlier_leases
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Databases, RedisKeyspace
from tests.world import catalog

SETTINGS = catalog(Service("work", limit=2, timeout=60))


PREFIX = "{restored}:"


async def opened(url: str, redis: RedisKeyspace) -> Engine:
    return await cluster(SETTINGS, url, redis.url, prefix=PREFIX, unsafe=True, sweeping=False)


async def test_earlier_leases_are_refused_and_the_index_fits_the_restored_ledger(
    postgres_server: Databases, redis_server: RedisKeyspace
) -> None:
    url = await postgres_server.new_database()
    async with await opened(url, redis_server) as engine:
        first = (await engine.submit(NewJob("work"))).job
        second = (await engine.submit(NewJob("work"))).job
        (known,) = await engine.claim(Worker("w"), 1)
    backup = await postgres_server.new_database(template=url.rsplit("/", 1)[1].split("?")[0])
    async with await opened(url, redis_server) as engine:  # goes on after the backup
        await engine.complete(known)
        (later,) = await engine.claim(Worker("w"), 1)
        await engine.complete(later)
        await engine.submit(NewJob("work"))

    assert await refuse_earlier_leases(backup) == 1
    async with await opened(backup, redis_server) as engine:
        for lease in (known, later):
            with pytest.raises(StaleLease):
                await engine.complete(lease)
        assert (await engine.get(first)).state is State.RUNNING
        (again,) = await engine.claim(Worker("w"), 1, wait=10)
        assert again.job == second, "Redis proposed it although it had seen it end"
        await engine.complete(again)
        with pytest.raises(LedgerInUse):
            await refuse_earlier_leases(backup)
