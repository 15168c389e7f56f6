"""Events reach listeners in other processes over pub/sub; where that fails, by comparing with the
ledger. The listener sits in the process of the test, which sweeps only when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fairlane.model.event import Event
from fairlane.model.job import Job
from fairlane.model.state import State
from fairlane.servers import Redis
from tests.cluster.conftest import NewFleet
from tests.cluster.fleet import LONG_ENOUGH, Gone
from tests.core import core_of
from tests.crash.life import as_json
from tests.world import World

ROUNDS = 5
"""The look with which a subscription begins can stand in for one message, not for all of them."""


async def test_a_listener_hears_another_process_without_a_sweep(new_fleet: NewFleet) -> None:
    """I25: every change, one after the other, over pub/sub alone."""
    fleet = await new_fleet()
    world = await fleet.world()
    other = await fleet.opened()
    job = await world.submit()
    looks = world.engine.follow(job)
    async with asyncio.timeout(LONG_ENOUGH):
        for fence in range(1, ROUNDS + 1):
            leases = await other.claim()
            await until(looks, State.RUNNING, fence)
            await other.ask("give_back", leases=[as_json(lease) for lease in leases])
            await until(looks, State.QUEUED, fence)
    await looks.aclose()


async def until(looks: AsyncIterator[Job | None], state: State, fence: int) -> None:
    async for job in looks:
        assert job
        if (job.state, job.fence) == (state, fence):
            return


@asynccontextmanager
async def listener(world: World, job: str) -> AsyncIterator[None]:
    """It has heard what there is; when the block is left, that the job is over."""
    events = world.engine.events(job)
    assert (await anext(events)).seq == 1
    rest = asyncio.create_task(numbers(events))
    yield
    async with asyncio.timeout(LONG_ENOUGH):
        heard = await rest
    stored = await core_of(world.engine).ledger.events(job, 1)
    assert heard == [event.seq for event in stored]
    assert not (await world.job(job)).live


async def numbers(events: AsyncIterator[Event]) -> list[int]:
    return [event.seq async for event in events]


async def test_a_sweep_finds_what_a_process_did_that_died_before_it_could_publish(
    new_fleet: NewFleet,
) -> None:
    """I25: the message is never sent; the safety net compares with the ledger."""
    fleet = await new_fleet()
    world = await fleet.world()
    other = await fleet.opened()
    job = await world.submit()
    async with listener(world, job):
        leases = await other.claim()
        await other.plan("die", "after ledger.settle")
        with suppress(Gone):
            await other.complete(leases)
        await world.engine.sweep()


async def test_a_sweep_tells_listeners_while_redis_is_away(
    new_fleet: NewFleet, own_redis: Redis
) -> None:
    """I25"""
    fleet = await new_fleet()
    world = await fleet.world()
    other = await fleet.opened()
    job = await world.submit()
    async with listener(world, job):
        own_redis.kill()
        await other.ask("cancel", job=job)
        await world.engine.sweep()


async def test_listeners_look_again_when_redis_is_back(
    new_fleet: NewFleet, own_redis: Redis
) -> None:
    """I25: messages sent while it was away are lost, and no sweep comes."""
    fleet = await new_fleet()
    world = await fleet.world()
    other = await fleet.opened()
    job, later = await world.submit(), await world.submit()
    async with listener(world, job), listener(world, later):
        own_redis.kill()
        await other.ask("cancel", job=job)
        own_redis.start()
        await other.ask("cancel", job=later)
