"""The index on a Redis Cluster: all keys are in one slot, and another node may take it over."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.compose import cluster
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Databases
from tests.cluster.redis_cluster import redis_cluster
from tests.core import core_of
from tests.world import catalog

pytestmark = pytest.mark.timeout(180)


async def test_another_node_takes_the_index_over(postgres_server: Databases) -> None:
    """I26: the primary of the slot dies, and its replica is promoted. Nothing is handed out twice,
    nothing is missing."""
    database = await postgres_server.new_database()
    with redis_cluster() as nodes:
        queue = await cluster(catalog(), database, nodes.url, sweeping=False, unsafe=True)
        async with queue as engine:
            worker = Worker("w")
            jobs = [(await engine.submit(NewJob("work", n))).job for n in range(5)]
            started = await engine.claim(worker, 2)
            nodes.owner.kill()
            jobs += [(await engine.submit(NewJob("work", n))).job for n in range(5, 8)]
            rest: list[Lease] = []
            async with asyncio.timeout(120):
                while len(rest) < 6:
                    await engine.sweep()
                    rest += await engine.claim(worker, 10, wait=0.05)
            assert [lease.job for lease in (*started, *rest)] == jobs
            for lease in (*started, *rest):
                await engine.complete(lease)
            assert not any(await engine.check())


async def test_a_planned_handover_loses_nothing(postgres_server: Databases) -> None:
    """I26: the old primary lives on as a replica, and its answers lead to the new one (MOVED)."""
    database = await postgres_server.new_database()
    with redis_cluster() as nodes:
        queue = await cluster(catalog(), database, nodes.url, sweeping=False, unsafe=True)
        async with queue as engine:
            first = (await engine.submit(NewJob("work"))).job
            nodes.replica.says("CLUSTER", "FAILOVER")
            nodes.replica.until("role:master", "INFO", "replication")
            second = (await engine.submit(NewJob("work"))).job
            leases: list[Lease] = []
            async with asyncio.timeout(120):
                while len(leases) < 2:
                    await engine.sweep()
                    leases += await engine.claim(Worker("w"), 2, wait=0.05)
            assert [lease.job for lease in leases] == [first, second]
            for lease in leases:
                await engine.complete(lease)
            assert (await engine.get(second)).state is State.COMPLETED
            assert not any(await engine.check())
            assert core_of(engine).epoch
