"""A limit is changed by two processes, and what they tell the index arrives in the wrong order."""

from __future__ import annotations

import asyncio

from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Service
from tests.cluster.conftest import NewFleet
from tests.cluster.fleet import Process, everything_ran_once
from tests.core import core_of
from tests.world import World, catalog

TOLD = "before index.configure"
ROUNDS = 5


async def setting(process: Process, limit: int) -> asyncio.Future[None]:
    """The ledger has the new limit; what this process tells the index of it is on its way."""
    await process.ask("sweep")
    await process.ask("advance", duration=1)
    await process.plan("hold", TOLD)
    change = process.tell("change", name="work", setting="limit", value=limit)
    await process.reached(TOLD, process.heard("reached").count([TOLD]) + 1)
    return change


async def told(process: Process, change: asyncio.Future[None]) -> None:
    await process.let_go(TOLD)
    await asyncio.wait_for(change, 30)


async def claims(world: World, third: Process, running: list[Lease], limit: int) -> None:
    """Everybody who is not in the middle of a change takes what they can get."""
    for _ in range(2):
        running += await third.claim(10)
        running += await world.claim(10)
        assert len(running) == len(await core_of(world.engine).ledger.slots()) <= limit


async def test_a_limit_goes_up_and_down_while_its_messages_cross(new_fleet: NewFleet) -> None:
    """I11, I7: one process sets 8, another knows of it and sets 4 again; the first one's message
    comes last. Nobody is granted more than the limit of that moment, and the index ends at 4."""
    fleet = await new_fleet(catalog(Service("work", limit=4)))
    world = await fleet.world()
    one, two, third = await fleet.many(3)
    await world.submit_all([NewJob("work", n) for n in range(100)])
    running: list[Lease] = []
    for _ in range(ROUNDS):
        await claims(world, third, running, limit=4)
        assert len(running) == 4
        up = await setting(one, 8)
        await claims(world, third, running, limit=8)
        above = max(4, len(running))
        down = await setting(two, 4)
        await claims(world, third, running, limit=above)
        assert len(running) == above, "nothing is granted while more than the limit run"
        await told(two, down)
        await told(one, up)
        (pool,) = (await core_of(world.engine).index.stats()).pools
        assert pool.limit == 4
        await claims(world, third, running, limit=above)
        assert len(running) == above
        while running:
            await world.engine.complete(running.pop())
            if len(running) >= 4:
                assert await world.claim(1) == []
    await world.drain()
    await everything_ran_once(world)
