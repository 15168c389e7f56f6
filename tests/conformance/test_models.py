"""What is learnt of models: how long they load, how long they work, and which ran last."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.index.index import ModelTimes
from fairlane.model.service import Affinity, Fairness, Service
from fairlane.units import SECOND
from tests.world import World, catalog

LOAD, WORK = 3, 10
"""Seconds."""


def generate(**more: object) -> Service:
    return Service("generate", fairness=Fairness.NONE, **more)  # type: ignore[arg-type]


async def ran(world: World, model: str, metrics: object = None, *, took: int = LOAD + WORK) -> None:
    """One job with this model, which ended with these metrics."""
    await world.submit("generate", model=model)
    lease = await world.claim_one()
    await world.pass_time(took)
    await world.engine.complete(lease, "made", metrics)


async def times(world: World) -> dict[str, ModelTimes]:
    return {each.model: each for each in (await world.engine.model_report()).times}


async def test_the_load_of_a_model_is_not_counted_as_its_work(tmp_path: Path) -> None:
    """policy: a load that the worker reports is learnt as a load, and the rest as work."""
    async with World(catalog(generate()), tmp_path / "ledger.db") as world:
        await ran(world, "music", {"load_seconds": LOAD})
        await ran(world, "music", {"load_seconds": 0}, took=WORK)
        load = LOAD * SECOND * 4 // 5
        assert await times(world) == {
            "music": ModelTimes("generate", "music", load, WORK * SECOND, 1)
        }


@pytest.mark.parametrize("said", [None, True, "3", -1, LOAD + WORK + 1, [], 1e300])
async def test_a_load_time_that_cannot_be_true_is_not_learnt(tmp_path: Path, said: object) -> None:
    async with World(catalog(generate()), tmp_path / "ledger.db") as world:
        await ran(world, "music", {"load_seconds": said})
        assert (await times(world))["music"][2:] == (None, (LOAD + WORK) * SECOND, 1)


async def test_a_job_without_a_model_or_without_affinity_teaches_nothing(tmp_path: Path) -> None:
    services = generate(), Service("plain", affinity=Affinity.NONE)
    async with World(catalog(*services), tmp_path / "ledger.db") as world:
        await ran(world, "", {"load_seconds": LOAD})
        await world.submit("plain", model="music")
        await world.engine.complete(await world.claim_one())
        report = await world.engine.model_report()
        assert (report.times, report.last) == ([], {})


async def test_the_model_that_ran_last_is_shown_with_its_jobs_in_a_row(tmp_path: Path) -> None:
    async with World(catalog(generate()), tmp_path / "ledger.db") as world:
        for model, tasks in (("music", 1), ("audio", 1), ("audio", 2), ("", 2)):
            await ran(world, model)
            last = (await world.engine.model_report()).last["generate"]
            assert (last.model, last.streak) == (model or "audio", tasks)
        report = await world.engine.model_report()
        assert report.workers["w"].model == "audio"
        assert {each.model: each.loads for each in report.times} == {"music": 1, "audio": 1}
