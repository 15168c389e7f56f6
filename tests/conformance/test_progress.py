"""The progress of a running step belongs to its attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.errors import InvalidInput
from fairlane.model.attempt import Fault
from fairlane.model.job import Progress
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, Service
from fairlane.model.state import State
from tests.world import World, catalog

PLAIN = Service("work", fairness=Fairness.NONE, max_attempts=2)


async def halfway(world: World) -> Lease:
    """A step that runs and has reported half of its work."""
    lease = await world.claim_one()
    await world.engine.progress(lease, 50, "half of the song")
    return lease


async def progress_of(world: World, job: str) -> Progress | None:
    return (await world.job(job)).progress


async def test_a_retry_begins_without_the_progress_of_the_attempt_before(tmp_path: Path) -> None:
    """I25: a listener of the second attempt is not told the percentage of the first."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.engine.fail(await halfway(world))
        assert await progress_of(world, job) is None
        await world.pass_time(60)
        await world.engine.give_back(await halfway(world))
        assert await progress_of(world, job) is None


async def test_a_lost_lease_takes_its_progress_with_it(tmp_path: Path) -> None:
    """I25: a worker died halfway; the job waits again, and nothing of it is done."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        job = await world.submit()
        lease = await halfway(world)
        await world.pass_time((lease.lease_until - world.clock.now()) / 1e6 + 1, sweeps=2)
        assert (await world.job(job)).state is State.QUEUED
        assert await progress_of(world, job) is None


async def test_the_next_step_begins_without_the_progress_of_the_step_before(tmp_path: Path) -> None:
    """I25"""
    settings = catalog(PLAIN, Service("more"), pipelines={"both": ("work", "more")})
    async with World(settings, tmp_path / "ledger.db") as world:
        job = await world.submit("both")
        await world.engine.complete(await halfway(world))
        assert await progress_of(world, job) is None


async def test_an_ended_job_keeps_its_last_progress_until_it_is_replayed(tmp_path: Path) -> None:
    """I25"""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.engine.fail(await halfway(world), Fault.SERVICE_ERROR)
        ended = await world.job(job)
        assert (ended.state, ended.progress is not None) == (State.FAILED, True)
        await world.engine.replay(job)
        assert await progress_of(world, job) is None


async def test_percent_and_text_of_a_report_are_bounded(tmp_path: Path) -> None:
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        job = await world.submit()
        lease = await world.claim_one()
        at = world.clock.now()
        for percent, text, stored in (
            (-3, "", Progress(0, "", at)),
            (100.01, "x" * 201, Progress(100, "x" * 200, at)),
            (float("inf"), "a\0b", Progress(100, "a\ufffdb", at)),
            (7.5, "half a pair: \ud83d", Progress(7.5, "half a pair: ?", at)),
        ):
            await world.engine.progress(lease, percent, text)
            assert await progress_of(world, job) == stored
        with pytest.raises(InvalidInput, match="percent"):
            await world.engine.progress(lease, float("nan"))
        assert await progress_of(world, job) == Progress(7.5, "half a pair: ?", at)
