"""Redis is away: submits and results are accepted, and nothing is lost when it is back (I26)."""

from __future__ import annotations

from fairlane.compose import cluster
from fairlane.model.job import NewJob
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Databases, Redis
from tests.world import catalog


async def test_submits_and_results_are_accepted_while_redis_is_away(
    postgres_server: Databases,
) -> None:
    database = await postgres_server.new_database()
    with Redis() as redis:
        queue = await cluster(catalog(), database, redis.url, sweeping=False, unsafe=True)
        async with queue as engine:
            first = (await engine.submit(NewJob("work"))).job
            (lease,) = await engine.claim(Worker("w"), 1)
            redis.kill()
            await engine.complete(lease)
            second = (await engine.submit(NewJob("work"))).job
            assert (await engine.get(first)).state is State.COMPLETED
            redis.start()
            await engine.rebuild()
            (again,) = await engine.claim(Worker("w"), 1)
            assert again.job == second
            await engine.complete(again)
            assert not any(await engine.check())


async def test_an_index_that_was_wiped_is_rebuilt_from_the_ledger(
    postgres_server: Databases,
) -> None:
    """I26: order and slots are the ledger's."""
    database = await postgres_server.new_database()
    with Redis() as redis:
        queue = await cluster(catalog(), database, redis.url, sweeping=False, unsafe=True)
        async with queue as engine:
            jobs = [(await engine.submit(NewJob("work", n))).job for n in range(5)]
            redis.restart()
            await engine.rebuild()
            leases = await engine.claim(Worker("w"), 10)
            assert [lease.job for lease in leases] == jobs
