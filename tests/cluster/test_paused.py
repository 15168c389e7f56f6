"""A process stands still for longer than its leases last, others go on, and then so does it."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.engine.rebuild import keep_up
from fairlane.errors import StaleLease
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.state import State
from tests.cluster.conftest import NewFleet
from tests.cluster.fleet import comes_true, everything_ran_once, flush
from tests.core import core_of
from tests.crash.life import as_json, from_json
from tests.world import World, catalog

LEASE = 3.0
LIMITED = catalog(Service("work", limit=2))


async def test_a_claim_that_stood_still_before_its_confirmation_gets_nothing(
    new_fleet: NewFleet,
) -> None:
    """I3, I5, I32: SIGSTOP between the index's claim and the ledger's confirmation, for two leases.
    Meanwhile another process runs the jobs; then the late confirmation is refused."""
    fleet = await new_fleet(LIMITED)
    world = await fleet.world()
    jobs = await world.submit_all([NewJob("work", n) for n in range(2)])
    process = await fleet.opened()
    await process.plan("stop", "before ledger.confirm")
    claim = process.tell("claim", worker="slow", n=2, heartbeat=LEASE / 3)
    await process.reached("before ledger.confirm")
    assert await world.claim(2) == []
    for _ in range(2):
        await world.pass_time(LEASE)
    leases = await world.claim(2)
    assert sorted(lease.job for lease in leases) == sorted(jobs)
    await world.engine.complete(leases[0], "mine")
    process.go_on()
    assert await asyncio.wait_for(claim, 30) == []
    assert (await world.job(jobs[1])).token == leases[1].token
    await world.engine.complete(leases[1], "mine")
    assert await world.drain() == 0
    await everything_ran_once(world)
    assert await slots_in_the_index(world) == 0


async def test_a_job_that_nobody_else_wanted_is_still_granted_once(new_fleet: NewFleet) -> None:
    """I5, I32: the proposal was taken back and is in line again when its process goes on; that
    process may get it, under a new proposal."""
    fleet = await new_fleet(LIMITED)
    world = await fleet.world()
    job = await world.submit()
    process = await fleet.opened()
    await process.plan("stop", "before ledger.confirm")
    claim = process.tell("claim", worker="slow", n=1)
    await process.reached("before ledger.confirm")
    await world.pass_time(6)
    process.go_on()
    (lease,) = map(from_json, await asyncio.wait_for(claim, 30))
    found = await world.job(job)
    assert (found.token, found.fence, found.attempt) == (lease.token, 1, 1)
    assert await world.claim() == []
    await world.engine.complete(lease)
    await everything_ran_once(world)


async def test_a_result_that_comes_after_two_leases_is_refused(new_fleet: NewFleet) -> None:
    """I3, I32: the worker's process stood still while it ran the job; the stored result is that of
    whoever ran it meanwhile, and slots are nobody's afterwards."""
    fleet = await new_fleet(LIMITED)
    world = await fleet.world()
    jobs = await world.submit_all([NewJob("work", n) for n in range(2)])
    process = await fleet.opened()
    late = await process.claim(2, heartbeat=LEASE / 3)
    await process.plan("stop", "before ledger.settle")
    settling = process.tell("complete", leases=[as_json(lease) for lease in late])
    await process.reached("before ledger.settle")
    for _ in range(2):
        await world.pass_time(LEASE)
    done, running = await world.claim(2)
    await world.engine.complete(done, "mine")
    process.go_on()
    outcomes = dict(
        zip([lease.job for lease in late], await asyncio.wait_for(settling, 30), strict=True)
    )
    assert outcomes == {done.job: [State.COMPLETED], running.job: [State.RUNNING]}
    assert len(await core_of(world.engine).ledger.slots()) == 1, "the newer lease keeps its slot"
    await world.engine.complete(running, "mine")
    for job in jobs:
        assert [each.outcome for each in await world.engine.attempts(job)] == ["lost", "completed"]
    with pytest.raises(StaleLease):
        await world.engine.complete(late[0])
    await everything_ran_once(world)
    assert await slots_in_the_index(world) == 0


async def test_whoever_stands_still_in_a_transaction_holds_nobody_up_for_long(
    new_fleet: NewFleet,
) -> None:
    """I32: stopped in the middle of a change of limits, with the lock that every claim needs. The
    database takes it away; when the process goes on, it makes its change."""
    fleet = await new_fleet(LIMITED)
    world = await fleet.world()
    await world.submit_all([NewJob("work", n) for n in range(2)])
    process = await fleet.opened()
    await process.plan("stop", "in a transaction")
    change = process.tell("change", name="work", setting="limit", value=1)
    await process.reached("in a transaction")
    leases = await asyncio.wait_for(world.claim(2), 20)
    assert len(leases) == 2
    process.go_on()
    await asyncio.wait_for(change, 30)
    await world.engine.complete(leases[0])
    assert await world.claim(1) == []
    await world.engine.complete(leases[1])
    await everything_ran_once(world)


async def test_a_rebuilder_that_stood_still_does_not_spoil_the_next_life(
    new_fleet: NewFleet,
) -> None:
    """I26, I32: another one rebuilds meanwhile; the late pages are ignored, and it joins."""
    fleet = await new_fleet(LIMITED)
    world = await fleet.world()
    jobs = await world.submit_all([NewJob("work", n) for n in range(4)])
    process = await fleet.opened()
    await flush(fleet.redis)
    await process.plan("stop", "before index.load")
    sweep = process.tell("sweep")
    await process.reached("before index.load")
    core = core_of(world.engine)
    await comes_true(lambda: keep_up(core))
    leases = await world.claim(2)
    for lease in leases:
        await world.engine.complete(lease)
    process.go_on()
    await asyncio.wait_for(sweep, 30)
    await process.ask("sweep")
    assert await keep_up(core)
    assert core.epoch == await process.ask("life") == (await core.ledger.turn())[0].life
    found = await process.claim(5)
    assert sorted(each.job for each in [*leases, *found]) == sorted(jobs)
    await process.complete(found)
    await everything_ran_once(world)


async def slots_in_the_index(world: World) -> int:
    await world.engine.sweep()
    stats = await core_of(world.engine).index.stats()
    return sum(use.held for use in stats.pools) + stats.held
