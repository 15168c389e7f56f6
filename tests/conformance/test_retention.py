"""When ended jobs are deleted: at the times of the preset for generations."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.errors import NotFound
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Limits
from fairlane.model.state import State
from fairlane.presets import generation
from fairlane.units import SECOND
from tests.world import World, catalog

HOUR, FIRST_LOOK, LOOK = 3600, 10, 300
"""Seconds that an ended job is kept, until the first look for jobs to delete, and from one look to
the next."""


async def test_a_generation_is_deleted_at_the_first_look_after_an_hour_and_live_work_never(
    tmp_path: Path,
) -> None:
    """I30: completed, failed and cancelled jobs stay until the look; queued and running ones stay
    for ever."""
    async with World(generation(), tmp_path / "ledger.db") as world:
        completed = await world.submit("generate", user="ada")
        await world.engine.complete(await world.claim_one(), {"url": "https://cdn.example/a.wav"})
        failed = await world.submit("generate", user="bob")
        await world.engine.fail(await world.claim_one(), Fault.INVALID_INPUT)
        cancelled = await world.submit("generate", user="cleo")
        await world.engine.cancel(cancelled)
        running = await world.submit("generate", user="dora")
        lease = await world.claim_one()
        waiting = await world.submit("generate", user="emil")
        ended = {
            completed: State.COMPLETED,
            failed: State.FAILED,
            cancelled: State.CANCELLED,
        }
        await world.pass_time(0, sweeps=FIRST_LOOK)
        world.clock.advance((HOUR + 1) * SECOND)
        await world.engine.renew([lease], world.clock.now() + 10 * HOUR * SECOND)
        await world.pass_time(0, sweeps=LOOK - 1)
        for job, state in ended.items():
            assert (await world.job(job)).state is state
        await world.pass_time(0)
        for job in ended:
            with pytest.raises(NotFound):
                await world.job(job)
        world.clock.advance(1000 * HOUR * SECOND)
        await world.pass_time(0, sweeps=LOOK)
        assert (await world.job(running)).live
        assert (await world.job(waiting)).live
        await world.healthy()


async def test_ended_jobs_stay_for_an_hour_however_often_is_looked(tmp_path: Path) -> None:
    """I30: the quota "per hour" counts their records."""
    async with World(generation(), tmp_path / "ledger.db") as world:
        job = await world.submit("generate", user="ada")
        await world.engine.cancel(job)
        world.clock.advance((HOUR - 1) * SECOND)
        await world.pass_time(0, sweeps=FIRST_LOOK + LOOK)
        assert (await world.job(job)).state is State.CANCELLED


@pytest.mark.parametrize(("quota", "kept"), [(None, False), (5, True)])
async def test_jobs_are_deleted_within_the_hour_unless_an_hourly_quota_counts_them(
    tmp_path: Path, quota: int | None, kept: bool
) -> None:
    """I13, I30: an administrator may set the quota while the queue runs."""
    limits = Limits(keep_finished=60)
    async with World(catalog(limits=limits), tmp_path / "ledger.db") as world:
        await world.engine.set_quota("ada", per_hour=quota)
        job = await world.submit(user="bob")
        await world.engine.cancel(job)
        world.clock.advance(61 * SECOND)
        await world.pass_time(0, sweeps=FIRST_LOOK)
        if kept:
            assert (await world.job(job)).state is State.CANCELLED
        else:
            with pytest.raises(NotFound):
                await world.job(job)
