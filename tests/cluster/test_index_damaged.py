"""Parts of the index are deleted or forged in Redis itself: it costs time, never a promise."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from redis.asyncio import Redis

from fairlane.engine.settle import Done
from fairlane.errors import NotReady
from fairlane.index.redis import script_client
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Region, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from tests.cluster.conftest import THOROUGH, NewFleet
from tests.cluster.fleet import LONG_ENOUGH, Fleet, all_jobs, everything_ran_once
from tests.core import core_of
from tests.crash.life import from_json
from tests.world import World, catalog

SETTINGS = catalog(
    Service("plain"),
    Service("narrow", limit=3),
    Service("metered", rate=1000, max_attempts=9),
    Service("spread", regions={"eu": Region("eu", 2), "us": Region("us", 2)}),
    tiers=Tiers(
        [Tier("high", max_retries=9), Tier("low", {"high": 600}, max_running_per_user=5)],
        default="low",
    ),
)
SERVICES = ("plain", "narrow", "metered", "spread")
WORKERS = (Worker("in eu", region="eu"), Worker("in us", region="us"))
SEEDS = range(25) if THOROUGH else (0, 1, 14)
"""14: a flow of a user at their limit is ranked in a queue that is not its own."""
Members = list[tuple[bytes, str, Any]]
"""Key, type, and which member of it; none for a key that holds one value."""


async def a_queue_at_work(world: World, dice: random.Random, size: int = 60) -> None:
    """Jobs of all kinds wait, some run, some have failed and wait for their time."""
    await world.engine.add_credits("ann", 10_000, "gift")
    jobs = await world.submit_all(
        [
            NewJob(
                dice.choice(SERVICES),
                user=dice.choice(["ann", "bob", "cleo"]),
                tier=dice.choice(["high", "low"]),
                model=dice.choice(["", "a", "b"]),
                run_at=world.clock.now() + dice.choice([0, 0, 0, 5, 20]) * 1_000_000,
            )
            for _ in range(size)
        ]
    )
    for job in dice.sample(jobs, 5):
        if (await world.job(job)).user == "ann":
            await world.engine.skip(job)
    world.clock.advance(1_000_000)
    for worker in WORKERS:
        for lease in await world.claim(6, worker):
            if dice.random() < 0.3:
                await world.engine.fail(lease)


async def runs_within(world: World, limit: int, left: list[Lease]) -> list[Lease]:
    """Lets this many seconds pass, one by one, and works. What was granted."""
    granted: list[Lease] = []
    running = list(left)
    for _ in range(limit):
        await world.pass_time(1)
        for worker in WORKERS:
            found = await claimed(world, worker)
            granted += found
            running += found
        for lease in running:
            await world.engine.complete(lease)
        running.clear()
        if not await world.live():
            break
    return granted


async def claimed(world: World, worker: Worker) -> list[Lease]:
    """A damaged index is built anew by a sweep, and not again and again in the same moment."""
    async with asyncio.timeout(LONG_ENOUGH):
        while True:
            try:
                return await world.claim(50, worker)
            except NotReady:
                await world.engine.sweep()
                await asyncio.sleep(0.05)


async def test_every_job_runs_though_a_tenth_of_the_index_was_deleted(new_fleet: NewFleet) -> None:
    """I26: members of all its keys, chosen at random. Within 70 s of the engine's clock."""
    for seed in SEEDS:
        dice = random.Random(seed)
        fleet = await new_fleet(SETTINGS)
        world = await fleet.world()
        await a_queue_at_work(world, dice)
        left = await running_leases(world)
        chosen = await a_tenth_is_deleted(fleet, dice)
        await runs_within(world, 70, left)
        late = [job for job in await all_jobs(world) if job.live]
        assert not late, (seed, late, chosen)
        await everything_ran_once(world)


@pytest.mark.long
@pytest.mark.parametrize("spared", ["nothing", "meta", "all but line"])
async def test_two_thousand_jobs_run_though_a_tenth_of_the_index_was_deleted(
    new_fleet: NewFleet, spared: str
) -> None:
    """I26: long lines. Without its name the index is built anew by the next sweep, without entries
    when a claim finds it damaged; that only places in line are missing is seen by who compares it
    with the ledger. Within 70 s of the engine's clock; work takes no time of it."""
    dice = random.Random(2000)
    fleet = await new_fleet(SETTINGS)
    world = await fleet.world()
    await a_queue_at_work(world, dice, 2000)
    left = await running_leases(world)
    chosen = await a_tenth_is_deleted(fleet, dice, spared)
    assert len(chosen) > 100
    await world.engine.settle([Done(lease) for lease in left])
    for _ in range(70):
        await world.pass_time(1)
        for worker in WORKERS:
            while found := await claimed(world, worker):
                await world.engine.settle([Done(lease) for lease in found])
        if not await world.live():
            break
    late = [job.id for job in await all_jobs(world) if job.live]
    assert not late
    assert len(await everything_ran_once(world)) == 2000


async def a_tenth_is_deleted(fleet: Fleet, dice: random.Random, spared: str = "nothing") -> Members:
    """What was."""
    async with Redis.from_url(fleet.redis) as server:
        members = await members_of(server, fleet)
        if spared == "meta":
            members = [member for member in members if kind_of(member[0]) != b"meta"]
        if spared == "all but line":
            members = [member for member in members if kind_of(member[0]) == b"line"]
        chosen = dice.sample(members, len(members) // 10)
        for member in chosen:
            await delete(server, member)
    return chosen


async def test_a_forged_index_grants_nothing_twice_and_nobody_above_their_tier(
    new_fleet: NewFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I27, I3, I7: members are copied under other names, put into other keys, given other values
    and scores, at random and all the time, while two processes claim. The ledger decides.

    The pause between two rebuilds is real time, the 70 seconds are simulated and may be shorter."""
    monkeypatch.setattr(script_client, "FIRST_REBUILD_PAUSE", 0.0)
    for seed in SEEDS:
        dice = random.Random(seed)
        fleet = await new_fleet(SETTINGS)
        world = await fleet.world()
        await a_queue_at_work(world, dice)
        tiers = {job.id: job.tier for job in await all_jobs(world)}
        granted = {lease.token: lease for lease in await running_leases(world)}
        other = await fleet.opened()
        async with Redis.from_url(fleet.redis) as server:
            for _ in range(6):
                members = await members_of(server, fleet)
                for _ in range(len(members) // 20):
                    await forge(server, dice, members)
                answers = await asyncio.gather(
                    *(world.claim(4, worker) for worker in WORKERS),
                    other.tell("claim", worker="w", n=4),
                    return_exceptions=True,
                )
                for leases in answers:
                    found = leases if isinstance(leases, list) else []
                    for lease in (
                        from_json(each) if isinstance(each, dict) else each for each in found
                    ):
                        assert lease.token not in granted
                        assert lease.tier == tiers[lease.job]
                        granted[lease.token] = lease
                await limits_hold(world, granted)
        await runs_within(world, 70, list(granted.values()))
        late = [job for job in await all_jobs(world) if job.live]
        assert not late, (seed, late)
        await everything_ran_once(world)


async def limits_hold(world: World, granted: dict[str, Lease]) -> None:
    """No slot is taken twice or above its limit, and who runs is who was granted."""
    rows = [row.slot for row in await core_of(world.engine).ledger.slots()]
    assert len({(slot.pool, slot.n) for slot in rows}) == len(rows)
    limits = {name: pool.limit for name, pool in SETTINGS.all_pools().items()}
    for pool, held in Counter(slot.pool for slot in rows).items():
        assert held <= limits.get(pool, 5), pool
    for job in await all_jobs(world):
        assert job.token is None or job.token in granted
    await world.healthy()


async def running_leases(world: World) -> list[Lease]:
    """Of those who still run; they will finish whatever becomes of the index."""
    ledger = core_of(world.engine).ledger
    running = [job for job in await all_jobs(world) if job.state is State.RUNNING]
    found = [await ledger.lease(job.id, job.token or "") for job in running]
    return [lease for lease in found if isinstance(lease, Lease)]


# --- looking into Redis --------------------------------------------------------------------------
async def members_of(server: Redis, fleet: Fleet) -> Members:
    """Everything in the index that can be lost one by one."""
    members: Members = []
    async for key in server.scan_iter(f"{fleet.prefix}*", count=1000):
        kind = (await server.type(key)).decode()  # type: ignore[union-attr]
        match kind:
            case "hash":
                members += [(key, kind, each) for each in await server.hkeys(key)]
            case "zset":
                members += [(key, kind, each) for each in await server.zrange(key, 0, -1)]
            case "set":
                members += [(key, kind, each) for each in await server.smembers(key)]
            case _:
                members.append((key, kind, None))
    return sorted(members, key=str)


async def forge(server: Redis, dice: random.Random, members: Members) -> None:
    """One member gets what belongs to another one of its kind, here or in another key."""
    key, kind, name = dice.choice(members)
    alike = [each for each in members if each[1] == kind and kind_of(each[0]) == kind_of(key)]
    elsewhere, _, other = dice.choice(alike)
    match kind:
        case "hash":
            value = await server.hget(elsewhere, other)
            await server.hset(dice.choice([key, elsewhere]), name, value or b"")
        case "zset":
            await server.zadd(dice.choice([key, elsewhere]), {name: dice.randrange(1 << 50)})
        case "set":
            await server.sadd(elsewhere, name)
        case _:
            pass


def kind_of(key: bytes) -> bytes:
    """What keys are called that hold the same for different services, users or lives."""
    name = key.partition(b"}:")[2]
    return (name.partition(b":")[2] if name.startswith(b"@") else name).partition(b":")[0]


async def delete(server: Redis, member: tuple[bytes, str, Any]) -> None:
    key, kind, name = member
    match kind:
        case "hash":
            await server.hdel(key, name)
        case "zset":
            await server.zrem(key, name)
        case "set":
            await server.srem(key, name)
        case _:
            await server.delete(key)
