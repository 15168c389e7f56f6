"""Bytes that no script has written stand in a key of the index: whoever finds them ends its life,
and it is built anew. No verb fails of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from redis.asyncio import Redis

from fairlane.errors import NotReady
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.worker import Worker
from tests.cluster.conftest import THOROUGH, NewFleet
from tests.cluster.fleet import Fleet, everything_ran_once
from tests.cluster.test_index_damaged import SERVICES, SETTINGS, WORKERS, kind_of
from tests.core import core_of
from tests.world import World

Spoil = Callable[[Redis, bytes], Awaitable[object]]


async def another_type(server: Redis, key: bytes) -> None:
    """Nothing of ours is a stream."""
    await server.delete(key)
    await server.xadd(key, {"garbage": "\0"})


async def cut_off(server: Redis, key: bytes) -> None:
    await _each(server, key, lambda value: value[: len(value) // 2])


async def garbage(server: Redis, key: bytes) -> None:
    await _each(server, key, lambda _: b"\xff\0{garbage")


async def other_bits(server: Redis, key: bytes) -> None:
    await _each(server, key, lambda value: bytes(byte ^ 0x55 for byte in value))


async def nothing(server: Redis, key: bytes) -> None:
    await _each(server, key, lambda _: b"")


async def _each(server: Any, key: bytes, spoilt: Callable[[bytes], bytes]) -> None:
    """Every value, or member where there are none."""
    match (await server.type(key)).decode():
        case "hash":
            for name, value in (await server.hgetall(key)).items():
                await server.hset(key, name, spoilt(value))
        case "zset":
            for member, score in await server.zrange(key, 0, -1, withscores=True):
                await server.zrem(key, member)
                await server.zadd(key, {spoilt(member): score})
        case "set":
            for member in await server.smembers(key):
                await server.srem(key, member)
                await server.sadd(key, spoilt(member))
        case "string":
            await server.set(key, spoilt(await server.get(key)))
        case _:
            pass


async def all_ones(server: Redis, key: bytes) -> None:
    """As a number that is none."""
    await _each(server, key, lambda value: b"\xff" * len(value))


WAYS = (another_type, cut_off, garbage, other_bits, nothing, all_ones)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_no_verb_fails_of_what_stands_in_a_key(
    new_fleet: NewFleet, way: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    """I26, I27: key by key; every job runs, once."""
    fleet = await new_fleet(SETTINGS)
    world = await fleet.world()
    async with Redis.from_url(fleet.redis) as server:
        async with a_queue_at_work(world):
            kinds = sorted({kind_of(key) for key in await keys_of(server, fleet)})
        for kind in kinds if THOROUGH else kinds[WAYS.index(way) :: len(WAYS)]:
            await world.restart()
            async with a_queue_at_work(world):
                for key in await keys_of(server, fleet):
                    if kind_of(key) == kind:
                        await way(server, key)
                await works(world)
            broken = [record.getMessage() for record in caplog.records if record.exc_info]
            assert not broken, (kind, broken)
    await everything_ran_once(world)


async def test_what_outlives_a_rebuild_does_not_outlive_damage(new_fleet: NewFleet) -> None:
    """I26: the note of sick services is read by every claim."""
    fleet = await new_fleet(SETTINGS)
    world = await fleet.world()
    async with Redis.from_url(fleet.redis) as server, a_queue_at_work(world):
        await garbage(server, f"{fleet.prefix}gates".encode())
        await works(world)


async def test_numbers_that_are_none_do_not_keep_a_claim_busy(new_fleet: NewFleet) -> None:
    """I26: what is not equal to itself has no place in an order."""
    fleet = await new_fleet(SETTINGS)
    world = await fleet.world()
    async with Redis.from_url(fleet.redis) as server, a_queue_at_work(world):
        for key in await keys_of(server, fleet):
            if kind_of(key) == b"accounts":
                await all_ones(server, key)
        await works(world)


async def keys_of(server: Redis, fleet: Fleet) -> list[bytes]:
    return sorted([key async for key in server.scan_iter(f"{fleet.prefix}*", count=1000)])


@asynccontextmanager
async def a_queue_at_work(world: World) -> AsyncIterator[None]:
    """Something of everything: delayed, paid for, running, at the cap, of a sick service, and a
    worker that waits."""
    await world.engine.add_credits("ann", 100, "gift")
    now = world.clock.now()
    jobs = [
        NewJob(name, user=user, tier=tier, model=model, run_at=now + later)
        for name in SERVICES
        for user, tier, model in (("ann", "low", "a"), ("bob", "low", ""), ("cleo", "high", "b"))
        for later in (0, 5_000_000)
    ]
    ids = await world.submit_all(jobs)
    await world.engine.skip(ids[0])
    with suppress(NotReady):  # who has learnt something hears that the index is being built
        await world.engine.loaded("plain", "a", 2.0)
    for worker in WORKERS:
        for lease in await world.claim(4, worker):
            if lease.service == "metered":
                await world.engine.fail(lease, Fault.UNAVAILABLE)
    idle = Worker("idle", services=frozenset({"nothing"}))
    waiting = asyncio.create_task(world.engine.claim(idle, 1, wait=3600))
    while not (await core_of(world.engine).index.stats()).idle:
        pass
    try:
        yield
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def works(world: World) -> None:
    """Everything runs, within 100 s of the engine's clock. Who only looks may be told to wait."""
    ledger = core_of(world.engine).ledger
    for _ in range(100):
        job = await world.submit("plain")
        with suppress(NotReady):
            await world.engine.view(job)
            await world.engine.overview()
        for worker in WORKERS:
            await world.claim(9, worker)
        for held in await ledger.held():
            lease = await ledger.lease(held.id, held.token or "")
            assert isinstance(lease, Lease)
            await world.engine.complete(lease)
        await world.pass_time(1)
        if not await world.live():
            return
    raise AssertionError(f"{await world.live()} jobs are left")
