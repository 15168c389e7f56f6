"""PostgreSQL dies for good, and its standby takes its place."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from fairlane.compose import cluster
from fairlane.engine import Engine
from fairlane.errors import StoreAway, is_store_error
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Postgres, RedisKeyspace
from tests.world import catalog


@pytest.mark.timeout(180)
async def test_the_standby_takes_over_and_nothing_that_was_acknowledged_is_lost(
    redis_server: RedisKeyspace,
) -> None:
    """I1, I3, I28: the URL names both servers, and only the primary is used. A commit is answered
    when the standby has it."""
    with (
        Postgres(fsync=False, replicated=True) as primary,
        Postgres(fsync=False, standby_of=primary) as standby,
    ):
        database = urlsplit(await primary.new_database())
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://postgres@{hosts}{database.path}?target_session_attrs=primary"
        only_standby = url.replace(hosts, f"127.0.0.1:{standby.port}")
        queue = await cluster(
            catalog(Service("work", limit=3)),
            url,
            redis_server.url,
            prefix="{failover}:",
            unsafe=True,
        )
        async with queue as engine:
            jobs = [(await engine.submit(NewJob("work", n))).job for n in range(6)]
            before = await engine.claim(Worker("w"), 3)
            await engine.complete(before[0], "made before")
            primary.kill()
            with pytest.raises(Exception) as refused:  # noqa: PT011 - of asyncpg, or of the network
                await engine.submit(NewJob("work"))
            assert is_store_error(refused.value)
            with pytest.raises(StoreAway, match="cannot reach PostgreSQL"):
                await cluster(catalog(), only_standby, redis_server.url, unsafe=True)
            standby.promote()
            await until_it_answers(engine, before[1])
            await engine.complete(before[2])
            after: list[Lease] = []
            async with asyncio.timeout(60):
                while len(after) < 3:
                    after += await engine.claim(Worker("w"), 3, wait=1)
            for lease in after:
                await engine.complete(lease)
            assert [lease.job for lease in (*before, *after)] == jobs
            for job in jobs:
                assert (await engine.get(job)).state is State.COMPLETED
                assert len(await engine.attempts(job)) == 1
            assert not any(await engine.check())


async def until_it_answers(engine: Engine, lease: Lease) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await engine.complete(lease)
            except Exception as error:
                if not is_store_error(error):
                    raise
                await asyncio.sleep(0.05)
            else:
                return
