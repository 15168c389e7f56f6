"""The only process on a ledger starts again: the calls of its last life are over (I4), their slots
end with their timeouts (I8), and who worked elsewhere meanwhile loses nothing (I3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.clock import seconds
from fairlane.errors import StaleLease
from fairlane.model.attempt import Outcome
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, Overrun, Service
from fairlane.model.state import State
from fairlane.model.worker import Worker
from tests.core import core_of
from tests.world import World, catalog

pytestmark = pytest.mark.embedded

INSIDE = Worker("dispatcher-1/work", in_process=True)
OUTSIDE = Worker("far-away")
TIMEOUT = 60
LEASE = 15


def queue(tmp_path: Path, **settings: object) -> World:
    work = Service("work", fairness=Fairness.NONE, timeout=TIMEOUT, backoff=(0,), **settings)  # type: ignore[arg-type]
    return World(catalog(work), tmp_path / "ledger.db")


async def begun(world: World, worker: Worker) -> Lease:
    """A job that this worker runs."""
    await world.engine.register(worker)
    await world.submit()
    return await world.claim_one(worker)


async def test_a_call_of_the_last_life_is_taken_back_at_the_start(tmp_path: Path) -> None:
    """I4: it is in line again before anything else happens, and has cost one attempt."""
    async with queue(tmp_path) as world:
        lease = await begun(world, INSIDE)
        await world.restart()
        job = await world.job(lease.job)
        assert (job.state, job.token, job.attempt) == (State.QUEUED, None, 1)
        (attempt,) = await world.engine.attempts(lease.job)
        assert attempt.outcome is Outcome.LOST
        await world.engine.complete(await world.claim_one())
        await world.healthy()


async def test_a_call_of_the_last_life_whose_attempts_are_used_up_is_buried_at_the_start(
    tmp_path: Path,
) -> None:
    """I18: the attempts count as for an expired lease."""
    async with queue(tmp_path, max_attempts=2) as world:
        await begun(world, INSIDE)
        await world.restart()
        lease = await world.claim_one(INSIDE)
        await world.restart()
        assert (await world.job(lease.job)).state is State.DEAD
        await world.healthy()


async def test_a_process_that_dies_more_often_than_once_a_lease_takes_its_calls_back(
    tmp_path: Path,
) -> None:
    """I8, I10: the slot of a strict call is kept until start + timeout, through any number of
    restarts and rebuilds, and not a moment longer."""
    async with queue(tmp_path, limit=1, overrun=Overrun.STRICT) as world:
        lease = await begun(world, INSIDE)
        for _ in range(TIMEOUT // 5 - 1):
            world.clock.advance(seconds(5))
            await world.restart()
            await world.engine.sweep()
            (slot,) = await core_of(world.engine).ledger.slots()
            assert slot.slot.until == lease.deadline
            await world.engine.rebuild()
            assert await world.claim(1, INSIDE) == []
        await world.pass_time(5)
        assert (await world.claim_one(INSIDE)).job == lease.job
        await world.healthy()


async def test_a_worker_elsewhere_keeps_its_lease_through_a_restart(tmp_path: Path) -> None:
    """I3: however long the process was away, the worker can renew, and its result counts."""
    async with queue(tmp_path) as world:
        lease = await begun(world, OUTSIDE)
        world.clock.advance(seconds(LEASE + 5))
        await world.restart()
        await world.engine.sweep()
        world.clock.advance(seconds(LEASE - 1))
        renewal = await world.engine.heartbeat(OUTSIDE, [lease])
        assert (renewal.lost, renewal.cancelled) == ([], [])
        await world.pass_time(LEASE - 1)
        await world.engine.complete(lease)


async def test_a_worker_elsewhere_that_says_nothing_is_given_one_lease(tmp_path: Path) -> None:
    """I4."""
    async with queue(tmp_path) as world:
        lease = await begun(world, OUTSIDE)
        world.clock.advance(seconds(LEASE + 5))
        await world.restart()
        await world.pass_time(LEASE - 1)
        assert (await world.job(lease.job)).state is State.RUNNING
        await world.pass_time(1)
        assert (await world.job(lease.job)).state is State.QUEUED


async def test_a_result_that_was_ready_before_the_deadline_is_taken_after_the_restart(
    tmp_path: Path,
) -> None:
    """I3: its worker could not report it any sooner."""
    async with queue(tmp_path) as world:
        lease = await begun(world, OUTSIDE)
        world.clock.advance(seconds(TIMEOUT * 10))
        await world.restart()
        await world.pass_time(LEASE - 1)
        await world.engine.heartbeat(OUTSIDE, [lease])
        await world.engine.sweep()
        await world.engine.complete(lease)


async def test_no_number_of_restarts_keeps_a_task_running_beyond_its_deadline_and_a_lease(
    tmp_path: Path,
) -> None:
    """I10: a worker that died elsewhere is not waited for without end."""
    async with queue(tmp_path, limit=1, overrun=Overrun.STRICT) as world:
        lease = await begun(world, OUTSIDE)
        for _ in range((TIMEOUT + LEASE) // 5):
            world.clock.advance(seconds(5))
            await world.restart()
            await world.engine.sweep()
        assert (await world.job(lease.job)).state is State.QUEUED
        with pytest.raises(StaleLease):
            await world.engine.complete(lease)
        await world.engine.sweep()
        assert await core_of(world.engine).ledger.slots() == []
        await world.healthy()
