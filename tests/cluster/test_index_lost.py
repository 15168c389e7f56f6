"""The index is lost under processes that are using it: wiped, restarted empty, or replaced by a
server that lags behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest
import redis.asyncio

from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Overrun, Service
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Redis, Sentinel
from fairlane.servers.process import ask
from tests.cluster.conftest import NewFleet
from tests.cluster.fleet import Fleet, everything_ran_once, flush
from tests.cluster.load import under_load
from tests.core import core_of
from tests.crash.life import from_json
from tests.proxy import Proxy
from tests.world import World, catalog

IN_THE_GAP = "before ledger.confirm"


def limited(limit: int) -> Catalog:
    return catalog(Service("work", limit=limit))


async def test_a_hundred_claims_in_flight_survive_a_wiped_index(new_fleet: NewFleet) -> None:
    """I26, I7: FLUSHALL while 100 claims are between the index and the ledger. Half of them are
    confirmed before the index is built again, half are refused after; then everything runs once,
    and the limit holds all the time."""
    fleet = await new_fleet(limited(100))
    world = await fleet.world()
    jobs = await world.submit_all([NewJob("work", n) for n in range(150)])
    processes = await fleet.many(2)
    claims = []
    for process in processes:
        await process.plan("hold", IN_THE_GAP)
        claims.append([process.tell("claim", worker=f"w{n}", n=1) for n in range(50)])
    for process in processes:
        await process.reached(IN_THE_GAP, times=50)
    await flush(fleet.redis)
    await processes[0].let_go(IN_THE_GAP)
    confirmed = leases_of(await asyncio.gather(*claims[0]))
    assert len(confirmed) == 50 == await world.engine.count(State.RUNNING)
    await world.engine.sweep()
    life = (await core_of(world.engine).ledger.turn())[0].life
    await processes[1].let_go(IN_THE_GAP)
    again = leases_of(await asyncio.gather(*claims[1]))
    assert await world.engine.count(State.RUNNING) == 50 + len(again) <= 100
    assert len({lease.job for lease in [*confirmed, *again]}) == 50 + len(again)
    assert (await core_of(world.engine).ledger.turn())[0].life == life, "nobody has rebuilt again"
    for process, leases in zip(processes, (confirmed, again), strict=True):
        found = await process.complete(leases)
        assert [each[0] for each in found] == [State.COMPLETED] * len(leases)
    while leases := await world.claim(150):
        assert len(leases) <= 100
        for lease in leases:
            await world.engine.complete(lease)
    await world.drain()
    assert len(await everything_ran_once(world)) == len(jobs)


def leases_of(answers: list[list[dict[str, object]]]) -> list[Lease]:
    return [from_json(lease) for answer in answers for lease in answer]


@pytest.mark.parametrize("overrun", list(Overrun))
async def test_interrupted_jobs_start_as_soon_after_a_wiped_index_as_without_it(
    new_fleet: NewFleet, overrun: Overrun
) -> None:
    """I26: what they wait for is the end of their lease, and of a strict service's time limit."""
    service = Service("work", limit=2, timeout=60, overrun=overrun, max_attempts=5)
    kept, wiped = [
        await starts_of_the_interrupted(await new_fleet(catalog(service)), wipe=wipe)
        for wipe in (False, True)
    ]
    assert wiped == kept


async def starts_of_the_interrupted(fleet: Fleet, *, wipe: bool) -> list[int]:
    """Two of four low jobs run under a worker that is never heard of again. After how many seconds
    each of the four starts anew."""
    world = await fleet.world()
    for n in range(4):
        await world.engine.submit(NewJob("work", n, tier="low", user=f"u{n}"))
    await world.engine.claim(Worker("gone"), 2)
    if wipe:
        await flush(fleet.redis)
    started: list[int] = []
    for second in range(100):
        await world.pass_time(1)
        await world.engine.sweep()
        for lease in await world.engine.claim(Worker("there"), 4):
            started.append(second)
            await world.engine.complete(lease)
    assert len(started) == 4
    return started


# --- in real time, under load ------------------------------------------------------------------
async def test_redis_that_comes_back_empty_is_filled_again(
    new_fleet: NewFleet, own_redis: Redis
) -> None:
    """I26: killed with -9, with nothing on disk, under load. Submits are accepted while it is away;
    work goes on when it is back."""
    fleet = await new_fleet(limited(4))
    load = await under_load(fleet, 4)
    own_redis.kill()
    before = len(load.accepted)
    await load.submitter.until(lambda: len(load.accepted) > before + 5)
    own_redis.start()
    await load.goes_on()
    await load.ends_well()


class Front(Protocol):
    """An address under which a server is reached, and later the one that follows it."""

    url: str

    async def fall_behind(self) -> None:
        """From now on the follower learns nothing new."""

    async def take_over(self) -> None:
        """The server dies, and the follower has its address."""


class BehindProxy:
    """A proxy has the address."""

    def __init__(self, primary: Redis, replica: Redis, proxy: Proxy) -> None:
        self._primary, self._replica, self._proxy = primary, replica, proxy
        self.url = proxy.url

    async def fall_behind(self) -> None:
        async with redis.asyncio.Redis.from_url(self._replica.url) as server:
            await server.replicaof("NO", "ONE")

    async def take_over(self) -> None:
        self._primary.kill()
        self._proxy.lead_to(self._replica.url)


@asynccontextmanager
async def behind_proxy() -> AsyncIterator[BehindProxy]:
    with Redis() as primary, Redis(replica_of=primary) as replica:
        async with Proxy(primary.url) as proxy:
            yield BehindProxy(primary, replica, proxy)


class BehindSentinel:
    """A sentinel tells who is asked under the name."""

    def __init__(self, primary: Redis, replica: Redis, sentinel: Sentinel) -> None:
        self._primary, self._replica = primary, replica
        self.url = f"redis+sentinel://127.0.0.1:{sentinel.port}/fairlane"

    async def fall_behind(self) -> None:
        self._replica.pause()
        ask(self._primary.port, b"CLIENT KILL TYPE replica\r\n")

    async def take_over(self) -> None:
        self._primary.kill()
        self._replica.resume()


@asynccontextmanager
async def behind_sentinel() -> AsyncIterator[BehindSentinel]:
    with Redis() as primary, Redis(replica_of=primary) as replica, Sentinel(primary) as sentinel:
        yield BehindSentinel(primary, replica, sentinel)


@pytest.mark.parametrize("front", [behind_proxy, behind_sentinel])
async def test_a_replica_that_lags_behind_takes_over(
    new_fleet: NewFleet, front: Callable[[], AbstractAsyncContextManager[Front]]
) -> None:
    """I26, I27: it shows jobs that have long run and lacks those that came since. It is found to be
    another server, and filled from the ledger."""
    async with front() as redis_:
        fleet = await new_fleet(limited(4), redis=redis_.url)
        load = await under_load(fleet, 4)
        await redis_.fall_behind()
        await load.goes_on()
        world: World = await fleet.world()
        life = core_of(world.engine).epoch
        await redis_.take_over()
        await load.goes_on()
        await load.ends_well()
        assert (await core_of(world.engine).ledger.turn())[0].life != life
