"""Limits of task types that nobody configured: each type has those of the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.ledger import requests
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.worker import Worker
from tests.core import core_of
from tests.world import TIERS, World


def tasks(limit: int = 0, rate: int = 0) -> Catalog:
    defaults = Service("task", limit=limit, rate=rate)
    return Catalog(TIERS, [Service("configured", limit=1)], task_defaults=defaults)


async def test_every_task_type_has_the_limit_of_the_defaults(tmp_path: Path) -> None:
    """I7: also after a restart, a rebuild and a change of settings, with what runs counted."""
    async with World(tasks(limit=2), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob(name) for name in ("resize", "crop") for _ in range(5)])
        running = await world.claim(10)
        assert sorted(lease.service for lease in running) == ["crop", "crop", "resize", "resize"]
        assert await world.claim(10) == []
        await world.engine.complete(running.pop())
        assert len(await world.claim(10)) == 1
        await world.restart()
        assert await world.claim(10) == []
        await world.engine.rebuild()
        assert await world.claim(10) == []
        await world.engine.change("services", "configured", "limit", 3)
        assert await world.claim(10) == []
        await world.engine.complete(running.pop())
        assert len(await world.claim(10)) == 1
        await world.healthy()
        await world.drain()


async def test_a_task_type_may_start_so_often_a_minute(tmp_path: Path) -> None:
    """I9: a rate of the defaults."""
    async with World(tasks(rate=3), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("resize") for _ in range(8)])
        for lease in await world.claim(10):
            await world.engine.complete(lease)
        assert await world.live() == 5
        assert await world.claim(10) == []
        await world.pass_time(60)
        assert len(await world.claim(10)) == 3
        await world.healthy()


async def test_a_type_that_ran_without_a_limit_is_counted_when_there_is_one(tmp_path: Path) -> None:
    """I10: three run, two may: nothing starts before two have ended."""
    async with World(tasks(), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("resize") for _ in range(5)])
        running = await world.claim(3)
        world.settings = tasks(limit=2)
        await world.restart()
        assert await world.claim(5) == []
        await world.engine.complete(running[0])
        assert await world.claim(5) == []
        await world.engine.complete(running[1])
        assert len(await world.claim(5)) == 1
        await world.healthy()


async def test_types_that_are_no_longer_used_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger keeps a bounded number of their limits; one that comes back has its own again."""
    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"fairlane.ledger.{module}.admin.MAX_ADDED_POOLS", 3)
    assert requests.MAX_ADDED_POOLS > 3
    async with World(tasks(limit=1), tmp_path / "ledger.db") as world:
        worker = Worker("w")
        await world.submit("kept")
        (kept,) = await world.claim(1, worker)
        for n in [*range(8), 0]:
            await world.submit_all([NewJob(f"type{n}")] * 2)
            (lease,) = await world.claim(5, worker)
            await world.engine.complete(lease)
            await world.engine.complete(await world.claim_one(worker))
        await world.submit("kept")
        assert await world.claim(1, worker) == []
        await world.engine.complete(kept)
        assert len(await world.claim(1, worker)) == 1
        await world.healthy()


async def test_the_index_forgets_types_whose_jobs_are_gone(tmp_path: Path) -> None:
    """Also those that only waited; a rate is kept for its minute."""
    async with World(tasks(limit=1, rate=5), tmp_path / "ledger.db") as world:
        index = core_of(world.engine).index
        jobs = [await world.submit(name) for name in ("resize", "crop")]
        (lease,) = await world.claim(1)
        await world.engine.complete(lease)
        await world.engine.cancel(next(job for job in jobs if job != lease.job))
        world.clock.advance(7_200_000_000)
        await index.cleanup(world.clock.now())
        assert {use.pool for use in (await index.stats()).pools} == {"svc:configured"}
