"""What is learnt of models: how long they load, how long they work, and which ran last."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.engine.submit import Caller
from fairlane.index.index import ModelTimes
from fairlane.model.service import Affinity, Fairness, Service
from fairlane.model.worker import Loaded
from fairlane.units import SECOND
from tests.core import core_of
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
    return {each.model: each for each in (await world.engine.model_report("generate")).times}


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
        for service in ("generate", "plain"):
            report = await world.engine.model_report(service)
            assert (report.times, report.last) == ([], Loaded())


async def test_the_model_that_ran_last_is_shown_with_its_jobs_in_a_row(tmp_path: Path) -> None:
    async with World(catalog(generate()), tmp_path / "ledger.db") as world:
        for model, tasks in (("music", 1), ("audio", 1), ("audio", 2), ("", 2)):
            await ran(world, model)
            last = (await world.engine.model_report("generate")).last
            assert (last.model, last.streak) == (model or "audio", tasks)
        report = await world.engine.model_report("generate")
        assert report.workers["w"].model == "audio"
        assert {each.model: each.loads for each in report.times} == {"music": 1, "audio": 1}


async def test_a_report_has_the_models_of_one_service_that_were_used_last(tmp_path: Path) -> None:
    """S13: so many of them as are asked for, by completed jobs of one tenant or of any."""
    services = generate(), Service("other", fairness=Fairness.NONE)
    async with World(catalog(*services), tmp_path / "ledger.db") as world:
        for service, tenant, model in (
            ("generate", "shop", "a"),
            ("generate", "shop", "b"),
            ("other", "shop", "c"),
            ("generate", "rival", "d"),
            ("generate", "shop", "a"),
        ):
            await world.submit(service, Caller(tenant), model=model)
            await world.engine.complete(await world.claim_one())
        index = core_of(world.engine).index
        expected: list[tuple[str | None, int, list[str]]] = [
            (None, 9, ["a", "d", "b"]),
            (None, 2, ["a", "d"]),
            ("shop", 9, ["a", "b"]),
            ("shop", 1, ["a"]),
            ("rival", 9, ["d"]),
            ("nobody", 9, []),
        ]
        for of_tenant, most, models in expected:
            report = await index.models("generate", of_tenant, most)
            assert [each.model for each in report.times] == models
            assert {each.service for each in report.times} <= {"generate"}
        assert (await index.models("other", None, 9)).last.model == "c"


async def test_a_report_is_read_once_a_second(tmp_path: Path) -> None:
    """S13: a thousand browsers cost one look at what is learnt."""
    async with World(catalog(generate()), tmp_path / "ledger.db") as world:
        assert await times(world) == {}
        await ran(world, "music", took=0)
        assert await times(world) == {}
        world.clock.advance(SECOND)
        assert (await times(world)).keys() == {"music"}
