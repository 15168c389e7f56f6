"""Redis is away: submits and results are accepted, and nothing is lost when it is back (I26)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from orjson import dumps, loads
from redis.asyncio import Redis as Client

from fairlane.compose import cluster
from fairlane.engine import live_settings
from fairlane.engine.rebuild import join
from fairlane.errors import NotReady
from fairlane.index.redis.keys import KEY_PREFIX
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Executor, Service
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Databases, Redis, Sentinel
from fairlane.servers.process import ask
from tests.cluster.fleet import LONG_ENOUGH
from tests.core import core_of
from tests.proxy import Proxy
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


async def test_settings_that_redis_missed_at_the_start_are_told_when_it_is_back(
    postgres_server: Databases,
) -> None:
    """I26: also if they are as old as those that it has. It has the text of an older version, which
    did not write whether a service is called."""
    database, key = await postgres_server.new_database(), f"{KEY_PREFIX}services"
    settings = catalog(Service("gpu", Executor.HTTP, limit=1))
    with Redis() as redis:
        async with await cluster(settings, database, redis.url, sweeping=False, unsafe=True):
            pass
        async with Proxy(redis.url) as proxy, Client.from_url(redis.url) as client:
            text = (await client.hgetall(key))[b"gpu"]
            older = {name: value for name, value in loads(text).items() if name != "called"}
            await client.hset(key, "gpu", dumps(older))
            engine = await cluster(settings, database, proxy.url, sweeping=False, unsafe=True)
            core = core_of(engine)
            proxy.refuse()
            await live_settings.start(core)
            proxy.go_on()
            async with asyncio.timeout(LONG_ENOUGH):
                while not core.ready.is_set():
                    with suppress(NotReady):
                        await join(core)
            await engine.stop()
            assert (await client.hgetall(key))[b"gpu"] == text


async def test_every_move_and_every_report_counts_while_redis_is_away(
    postgres_server: Databases,
) -> None:
    """I26: whoever cancels, skips, replays, reports a failure of any kind or changes a limit hears
    that it was done; the index learns it when it is back."""
    database = await postgres_server.new_database()
    with Redis() as redis:
        queue = await cluster(catalog(), database, redis.url, sweeping=False, unsafe=True)
        async with queue as engine:
            await engine.add_credits("ann", 1000, "gift")
            request = NewJob("work", user="ann")
            jobs = [(await engine.submit(request)).job for _ in range(len(Fault) + 3)]
            leases = await engine.claim(Worker("w"), len(Fault) + 1)
            await engine.fail(leases[0], Fault.INVALID_INPUT)
            redis.kill()
            for lease, fault in zip(leases[1:], Fault, strict=True):
                await engine.fail(lease, fault)
            await engine.replay(leases[0].job)
            await engine.cancel(jobs[-2])
            await engine.skip(jobs[-1])
            await engine.change("services", "work", "limit", 1)
            seen = await engine.view(jobs[-1])
            assert (seen.job.state, seen.position) == (State.QUEUED, None)
            redis.start()
            await engine.sweep()
            (first,) = await engine.claim(Worker("w"), 5)
            assert first.job == jobs[-1], "the one that has paid, and no more than the limit"
            await engine.complete(first)
            (second,) = await engine.claim(Worker("w"), 5)
            assert second.job == leases[0].job
            assert not any(await engine.check())


async def test_a_replica_that_lags_behind_takes_over_through_sentinels(
    postgres_server: Databases,
) -> None:
    """I26: it knows the life of the index, but not all that happened in it: it is rebuilt. Nothing
    is handed out twice, nothing is missing."""
    database = await postgres_server.new_database()
    with Redis() as primary, Redis(replica_of=primary) as replica, Sentinel(primary) as sentinel:
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/fairlane"
        queue = await cluster(catalog(), database, url, sweeping=False, unsafe=True)
        async with queue as engine:
            worker = Worker("w")
            jobs = [(await engine.submit(NewJob("work", n))).job for n in range(5)]
            replica.pause()
            ask(primary.port, b"CLIENT KILL TYPE replica\r\n")  # it hears nothing of what follows
            started = await engine.claim(worker, 2)
            jobs += [(await engine.submit(NewJob("work", n))).job for n in range(5, 8)]
            life = core_of(engine).epoch
            primary.kill()
            replica.resume()
            rest: list[Lease] = []
            async with asyncio.timeout(60):
                while len(rest) < 6 or core_of(engine).epoch == life:
                    await engine.sweep()
                    rest += await engine.claim(worker, 10, wait=0.05)
            assert [lease.job for lease in (*started, *rest)] == jobs
            for lease in (*started, *rest):
                await engine.complete(lease)
            assert not any(await engine.check())
