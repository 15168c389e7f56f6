"""A called service is told which model is wanted, and in which slot."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlane.demo.services import SimulatedExecution, SimulatedService
from fairlane.index.index import SlotModel
from tests.core import core_of
from tests.dispatch.scene import called, scene
from tests.world import catalog

ONE_SLOT = catalog(called(limit=1, max_attempts=3))


async def test_model_and_slot_are_told_only_if_the_job_has_a_model(tmp_path: Path) -> None:
    async with scene(tmp_path, settings=ONE_SLOT) as at:
        await at.run()
        await at.run(model="music")
        told = [(call.model, call.slot) for call in at.service.calls]
        assert told == [(None, None), ("music", 1)]


async def test_two_slots_keep_two_models(tmp_path: Path) -> None:
    loads: list[tuple[int | None, str | None]] = []
    loaded: dict[int | None, str | None] = {}
    both = asyncio.Barrier(2)

    async def work(call: SimulatedExecution) -> Any:
        if loaded.get(call.slot) != call.model:
            loaded[call.slot] = call.model
            loads.append((call.slot, call.model))
        await both.wait()
        return {"made": call.model}

    service = SimulatedService("work", 2, work=work)
    async with scene(tmp_path, service, settings=catalog(called(limit=2))) as at:
        for _ in range(3):
            jobs = [await at.world.submit(model=model) for model in ("music", "audio")]
            for each in jobs:
                await at.ended(each)
        assert sorted(loads) == sorted(loaded.items(), key=str)
        assert {each.n: each.loaded.model for each in await slots(at)} == loaded


@pytest.mark.timeout(20)
async def test_a_service_that_died_starts_cold(tmp_path: Path) -> None:
    """policy: after a call without an answer the slot has no model."""
    async with scene(tmp_path, settings=ONE_SLOT) as at:
        await at.run(model="music")
        assert [each.n for each in await slots(at)] == [1]
        at.service.switches.drops = 1
        job = await at.world.submit(model="music")
        await at.until_attempts(job, 1)
        while await slots(at):  # noqa: ASYNC110 - the index is told after the ledger
            await asyncio.sleep(0)


async def test_a_service_that_fails_a_job_keeps_its_model(tmp_path: Path) -> None:
    async with scene(tmp_path, settings=ONE_SLOT) as at:
        at.service.switches.status = 400
        await at.run(model="music")
        assert [each.loaded.model for each in await slots(at)] == ["music"]


async def slots(at: Any) -> list[SlotModel]:
    return (await core_of(at.world.engine).index.models("work", None, 1)).slots
