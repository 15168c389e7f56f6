"""Nobody leads: any number of processes start, sweep, publish and wake each other at once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fairlane.model.event import EventType
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded, Worker
from tests.cluster.conftest import NewFleet
from tests.cluster.fleet import (
    LONG_ENOUGH,
    Fleet,
    Gone,
    Process,
    all_jobs,
    as_order,
    comes_true,
    everything_ran_once,
)
from tests.core import core_of
from tests.crash.life import from_json
from tests.world import World, catalog

PARENTS, AT_ONCE = 1000, 100


# --- one result ----------------------------------------------------------------------------------
async def test_the_last_two_cells_of_a_fan_out_end_it_once(new_fleet: NewFleet) -> None:
    """I20: settled by two processes at the same moment, a thousand times."""
    fleet = await new_fleet(catalog(Service("work")))
    world = await fleet.world()
    one, two = await fleet.many(2)
    ended: Counter[str] = Counter()
    for _ in range(0, PARENTS, AT_ONCE):
        jobs = [NewJob("work", matrix={"model": ("a", "b")}) for _ in range(AT_ONCE)]
        parents = await world.submit_all(jobs)
        leases = sorted(await world.claim(2 * AT_ONCE), key=lambda lease: lease.job)
        assert len(leases) == 2 * AT_ONCE
        answers = await asyncio.gather(
            one.complete(leases[::2], at_once=True), two.complete(leases[1::2], at_once=True)
        )
        outcomes = [outcome for answer in answers for outcome in answer]
        assert {state for state, _ in outcomes} == {State.COMPLETED}
        ended.update(parent for _, parent in outcomes if parent)
        found = await core_of(world.engine).ledger.jobs(parents)
        assert {job.state for job in found.values()} == {State.COMPLETED}
    assert len(ended) == PARENTS
    assert set(ended.values()) == {1}
    await world.healthy()


# --- sweeps --------------------------------------------------------------------------------------
SWEPT = catalog(
    Service("work", max_attempts=5),
    Service("patient", max_wait=20),
    tiers=Tiers([Tier("high"), Tier("low", {"high": 15})], default="low"),
)
LEASE = 15


async def a_lot_to_sweep(world: World) -> list[str]:
    """Leases without a worker, proposals that nobody confirms, jobs that will give up or be
    promoted. Who has lost their worker."""
    core = core_of(world.engine)
    await world.submit_all([NewJob("work") for _ in range(60)])
    lost = [lease.job for lease in await world.claim(30)]
    picks = await core.index.claim(Worker("forgetful"), Loaded(), 10, core.now(), core.epoch)
    assert len(picks.proposals) == 10
    await world.submit_all([NewJob("patient") for _ in range(20)])
    return lost


async def test_many_that_sweep_at_once_do_everything_once(new_fleet: NewFleet) -> None:
    """I36: four processes, each with the same things to do at the same moment: whatever one of them
    has seen, all have seen before one of them acts. One attempt is lost a lease, one failure a job
    that gives up, one promotion, one change a proposal nobody confirms; events have no gaps."""
    fleet = await new_fleet(SWEPT)
    world = await fleet.world()
    sweepers = await fleet.many(4)
    lost = await a_lot_to_sweep(world)
    for step in range(10):
        world.clock.advance(3_000_000)
        await asyncio.gather(*(each.ask("advance", duration=3) for each in sweepers))
        await sweep_side_by_side(sweepers, step + 1)
    told: Counter[tuple[str, str]] = Counter()
    revs: Counter[int] = Counter()
    for job in await all_jobs(world):
        if job.name == "work" and job.id not in lost:
            revs[job.rev] += 1
        events = await core_of(world.engine).ledger.events(job.id, 0)
        told.update((job.id, event.type) for event in events)
        tries = [each.outcome for each in await world.engine.attempts(job.id)]
        assert tries == (["lost"] if job.id in lost else [])
        assert job.state is (State.FAILED if job.name == "patient" else State.QUEUED)
    for kind in (EventType.JOB_PROMOTED, EventType.JOB_FAILED, EventType.JOB_RETRY):
        assert {n for (_, each), n in told.items() if each == kind} == {1}, kind
    assert sum(n for (_, each), n in told.items() if each == EventType.JOB_RETRY) == len(lost)
    assert revs == {1: 20, 2: 10}, "each of the ten proposals was taken back once"
    await world.drain()
    await everything_ran_once(world)


SEEN = (
    "after ledger.expired",
    "before ledger.give_up",
    "after index.unverified",
    "after index.promotable",
)
"""Where a sweep knows what there is to do and has not done it, in its order."""

PROMOTIONS_EVERY = 5


async def sweep_side_by_side(sweepers: list[Process], times: int) -> None:
    """Nobody acts on what it has seen before all have seen it."""
    for point in SEEN:
        await asyncio.gather(*(each.plan("hold", point) for each in sweepers))
    sweeps = [each.tell("sweep", rounds=PROMOTIONS_EVERY) for each in sweepers]
    for point in SEEN:
        await asyncio.gather(*(each.reached(point, times) for each in sweepers))
        await asyncio.gather(*(each.let_go(point) for each in sweepers))
    await asyncio.wait_for(asyncio.gather(*sweeps), LONG_ENOUGH)


@pytest.mark.parametrize("point", ["after ledger.expired", "after ledger.settle"])
async def test_a_sweeper_that_dies_delays_nothing_by_more_than_a_period(
    new_fleet: NewFleet, point: str
) -> None:
    """I36: killed while it takes leases back, it leaves them to whoever sweeps next; those whose
    end it had written are in line again when somebody has published, five seconds later."""
    fleet = await new_fleet(SWEPT)
    world = await fleet.world()
    lost = await a_lot_to_sweep(world)
    world.clock.advance((LEASE + 1) * 1_000_000)
    victim = await fleet.opened(now=world.clock.now() - (LEASE + 1) * 1_000_000)
    await victim.ask("advance", duration=LEASE + 1)
    await victim.plan("die", point)
    with pytest.raises(Gone):
        await victim.ask("sweep")
    for _ in range(5):
        await world.pass_time(1)
    assert {(await world.job(job)).state for job in lost} == {State.QUEUED}
    leases = await world.claim(100)
    assert set(lost) <= {lease.job for lease in leases}
    assert len(leases) == 60
    for lease in leases:
        await world.engine.complete(lease)
    await world.drain()
    await everything_ran_once(world)


# --- wake-ups ------------------------------------------------------------------------------------
async def idle(world: World, n: int) -> None:
    """Returns when so many workers are filed as idle."""

    async def are_idle() -> bool:
        return (await core_of(world.engine).index.stats()).idle == n

    await comes_true(are_idle)


async def test_a_job_wakes_a_worker_of_another_process(new_fleet: NewFleet) -> None:
    """Nobody polls: the worker's clock stands still, so only the bell can have woken it, and it has
    looked just twice."""
    fleet = await new_fleet(catalog(Service("work", limit=1)))
    world = await fleet.world()
    one, two = await fleet.many(2)
    await two.ask("passed")
    waiting = two.tell("claim", worker="w", n=1, wait=60)
    await idle(world, 1)
    (job,) = await one.ask("submit", jobs=as_order([NewJob("work")]))
    (lease,) = map(from_json, await asyncio.wait_for(waiting, 30))
    assert lease.job == job
    assert (await two.ask("passed")).count("before index.claim") == 2
    (later,) = await one.ask("submit", jobs=as_order([NewJob("work")]))
    waiting = one.tell("claim", worker="w", n=1, wait=60)
    await idle(world, 1)
    await two.complete([lease])
    (lease,) = map(from_json, await asyncio.wait_for(waiting, 30))
    assert lease.job == later, "a slot that is free wakes somebody too"


async def test_a_killed_process_is_woken_for_nothing(new_fleet: NewFleet) -> None:
    """I4: it was idle for longest; with clocks that stand still only a bell can wake the other."""
    fleet = await new_fleet()
    world = await fleet.world()
    victim, other = await fleet.many(2)
    victim.tell("claim", worker="v", n=1, wait=60)
    await idle(world, 1)
    waiting = other.tell("claim", worker="w", n=1, wait=60)
    await idle(world, 2)
    await victim.kill()
    job = await world.submit()
    (lease,) = map(from_json, await asyncio.wait_for(waiting, 30))
    assert lease.job == job


async def test_a_pause_in_one_process_holds_in_another_at_once(new_fleet: NewFleet) -> None:
    """I11: from the answer on, also for a claim that is on its way; and its end wakes who waits."""
    fleet = await new_fleet()
    world = await fleet.world()
    one, two = await fleet.many(2)
    await world.submit_all([NewJob("work")] * 3)
    await two.plan("hold", "before ledger.confirm")
    on_its_way = two.tell("claim", worker="w", n=1)
    await two.reached("before ledger.confirm")
    await one.ask("change", name="work", setting="paused", value=True)
    await two.let_go("before ledger.confirm")
    assert await asyncio.wait_for(on_its_way, 30) == []
    assert await two.claim(3) == await world.claim(3) == []
    waiting = two.tell("claim", worker="w", n=3, wait=60)
    await idle(world, 1)
    await one.ask("change", name="work", setting="paused", value=False)
    assert len(await asyncio.wait_for(waiting, 30)) == 3


# --- starts --------------------------------------------------------------------------------------
async def rebuilds(fleet: Fleet) -> int:
    passed = await asyncio.gather(*(each.ask("passed") for each in fleet.processes))
    return sum(points.count("after index.begin") for points in passed)


async def test_many_starts_at_once_build_the_index_once(new_fleet: NewFleet) -> None:
    """I26, I36: with nothing there, and again after it was lost. A start that finds it alive leaves
    it alone."""
    fleet = await new_fleet()
    processes = await fleet.many(4)
    assert await rebuilds(fleet) == 1
    lives = {await each.ask("life") for each in processes}
    assert len(lives) == 1
    later = await fleet.many(2)
    assert await rebuilds(fleet) == 0
    assert {await each.ask("life") for each in later} == lives
    jobs = await processes[0].ask("submit", jobs=as_order([NewJob("work")] * 3))
    leases = await later[1].claim(5)
    assert sorted(lease.job for lease in leases) == sorted(jobs)
