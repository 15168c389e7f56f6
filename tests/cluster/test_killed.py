"""A process is killed with -9 in the middle of what it does; the others carry on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import asyncpg
import pytest
from redis.asyncio import Redis

from fairlane.engine.rebuild import REBUILD_PAGE, keep_up
from fairlane.engine.settle import Done
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Service
from fairlane.model.state import State
from tests.cluster.conftest import THOROUGH, NewFleet
from tests.cluster.fleet import (
    Fleet,
    Gone,
    Process,
    all_jobs,
    as_order,
    comes_true,
    everything_ran_once,
)
from tests.core import core_of
from tests.crash.life import as_json
from tests.world import catalog

SETTINGS = catalog(
    Service("work", limit=400),
    Service("first"),
    Service("second", limit=400),
    pipelines={"both": ("first", "second")},
)


class Answers(NamedTuple):
    """What processes were told before they died."""

    accepted: list[str]
    finished: list[Lease]


Scenario = Callable[[Fleet, Process, Answers], Awaitable[None]]


async def submit(fleet: Fleet, process: Process, answers: Answers) -> None:
    jobs = [
        NewJob("work", idempotency_key=f"key of {process.pid}"),
        NewJob("both"),
        NewJob("work", matrix={"model": ("a", "b")}),
    ]
    answers.accepted.extend(await process.ask("submit", jobs=as_order(jobs)))


async def claim(fleet: Fleet, process: Process, answers: Answers) -> None:
    await process.claim(2)
    await process.claim(1, wait=1)


async def settle(fleet: Fleet, process: Process, answers: Answers) -> None:
    leases = await process.claim(4)
    await process.complete(leases[:2])
    answers.finished.extend(leases[:2])
    await process.ask("fail", leases=[as_json(lease) for lease in leases[2:]])


async def publish(fleet: Fleet, process: Process, answers: Answers) -> None:
    """What somebody has left behind who died after the commit: a job that only the outbox names."""
    (world,) = fleet.worlds
    job = await world.submit()
    await core_of(world.engine).index.take([(job, 1)])
    database = await asyncpg.connect(fleet.database)
    await database.execute("INSERT INTO fairlane.outbox (jobs) VALUES ($1)", [job])
    await database.close()
    answers.accepted.append(job)
    await process.ask("publish")


@pytest.mark.parametrize("scenario", [submit, claim, settle, publish])
async def test_whoever_dies_at_any_point_loses_nothing_and_doubles_nothing(
    new_fleet: NewFleet, scenario: Scenario
) -> None:
    """I1, I3, I6, I24: before and after every verb of both stores, and in a transaction. What was
    answered is true, what was not answered happened once or not at all."""
    fleet = await new_fleet(SETTINGS)
    world = await fleet.world()
    await world.submit_all([NewJob("both" if n % 2 else "work") for n in range(40)])
    answers = Answers([], [])
    points = await points_of(scenario, fleet)
    assert "after index.put" in points or "after ledger.confirm" in points
    victims = await fleet.many(len(points))
    for victim, point in zip(victims, points, strict=True):
        await victim.plan("die", point)
        with pytest.raises(Gone):
            await scenario(fleet, victim, answers)
        assert victim.heard("reached") == [[point]]
    await world.drain()
    jobs = {job.id: job for job in await everything_ran_once(world)}
    assert {jobs[job].state for job in answers.accepted} <= {State.COMPLETED}
    for lease in answers.finished:
        done = [each for each in await world.engine.attempts(lease.job) if each.step == lease.step]
        assert [each.fence for each in done if each.outcome == "completed"] == [lease.fence]


async def points_of(scenario: Scenario, fleet: Fleet) -> list[str]:
    """What somebody passes who lives through it. Between the end of one verb and the beginning of
    the next nothing happens that others could see: one of the two will do."""
    process = await fleet.opened()
    await process.ask("passed")
    await scenario(fleet, process, Answers([], []))
    first, *others = dict.fromkeys(await process.ask("passed"))
    return [first, *(point for point in others if THOROUGH or not point.startswith("before"))]


async def test_whoever_asks_again_after_a_death_gets_one_job(new_fleet: NewFleet) -> None:
    """I6, I12: the same key, given to another process by a caller who heard nothing."""
    fleet = await new_fleet()
    world = await fleet.world()
    for point in ("before ledger.submit", "after ledger.submit", "after index.put"):
        job = NewJob("work", idempotency_key=point)
        victim = await fleet.opened()
        await victim.plan("die", point)
        with pytest.raises(Gone):
            await victim.ask("submit", jobs=as_order([job]))
        first = await world.engine.submit(job)
        assert (await world.engine.submit(job)).job == first.job
    assert await world.drain() == len(await everything_ran_once(world)) == 3


DEATHS = [
    "after ledger.begin_rebuild",
    "after index.begin",
    "after index.load_slots",
    "after index.load",
    "after index.open",
    "after ledger.extend_rebuild",
]


async def test_a_rebuild_is_taken_over_wherever_the_rebuilder_dies(new_fleet: NewFleet) -> None:
    """I26, I36: at each of these points, in queues of their own at the same time. Two others notice
    and one of them does it; jobs and slots are those of the ledger."""
    fleets = [await new_fleet(SETTINGS) for _ in DEATHS]
    await asyncio.gather(*map(rebuilder_dies, fleets, DEATHS))


async def rebuilder_dies(fleet: Fleet, point: str) -> None:
    world = await fleet.world()
    jobs = await world.submit_all([NewJob("work", n) for n in range(20)])
    running = await world.claim(5)
    victim, other = await fleet.many(2)
    await victim.plan("die", point)
    with pytest.raises(Gone):
        await victim.ask("rebuild")
    assert victim.heard("reached") == [[point]]
    later = await world.submit_all([NewJob("work")])

    async def works() -> bool:
        found = await asyncio.gather(keep_up(core_of(world.engine)), other.ask("sweep"))
        return bool(found[0])

    await comes_true(works)
    await other.ask("sweep")
    stats = await core_of(world.engine).index.stats()
    assert (stats.held, [use.held for use in stats.pools if use.held]) == (5, [5])
    for lease in running:
        await world.engine.complete(lease)
    order = [lease.job for lease in await world.claim(6)]
    order += [lease.job for lease in await other.claim(100)]
    assert sorted(order) == sorted([*jobs, *later])[5:]
    assert await world.claim(1) == []
    lives = {core_of(world.engine).epoch, await other.ask("life")}
    assert lives == {(await core_of(world.engine).ledger.turn())[0].life}
    await world.healthy()


MANY = 2 * REBUILD_PAGE + 500
BETWEEN = ["after index.load", "in index.open"]


async def test_a_rebuild_is_taken_over_when_the_rebuilder_dies_between_two_pages(
    new_fleet: NewFleet,
) -> None:
    """I26, I36: of three pages one is loaded, or all are and some of them stand in line. Whoever
    takes over serves all of them, in order and once."""
    fleets = [await new_fleet(SETTINGS) for _ in BETWEEN]
    await asyncio.gather(*map(rebuilder_dies_halfway, fleets, BETWEEN))


async def rebuilder_dies_halfway(fleet: Fleet, point: str) -> None:
    world = await fleet.world()
    jobs = await world.submit_all([NewJob("first", n) for n in range(MANY)])
    running = await world.claim(5)
    victim, other = await fleet.many(2)
    await victim.plan("die", point)
    with pytest.raises(Gone):
        await victim.ask("rebuild")
    assert victim.heard("reached") == [[point]]
    assert 0 < await not_in_line_yet(fleet) < MANY - 5, "it died between two pages"
    jobs += await world.submit_all([NewJob("first")])

    async def works() -> bool:
        found = await asyncio.gather(keep_up(core_of(world.engine)), other.ask("sweep"))
        return bool(found[0])

    await comes_true(works)
    await other.ask("sweep")
    order = [lease.job for lease in running]
    await world.engine.settle([Done(lease) for lease in running])
    while leases := await other.claim(500):
        order += [lease.job for lease in leases]
        await other.complete(leases)
    assert order == jobs
    ended = await all_jobs(world)
    assert {(job.state, job.fence) for job in ended} == {(State.COMPLETED, 1)}
    assert len(ended) == len(jobs)
    await world.healthy()


async def not_in_line_yet(fleet: Fleet) -> int:
    """Of those that are loaded, how many wait for the index to open."""
    async with Redis.from_url(fleet.redis) as server:
        keys = [key async for key in server.scan_iter(f"{fleet.prefix}*:loading", count=1000)]
        return sum([await server.zcard(key) for key in keys])
