"""Quality checks that are Python functions of an SDK worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane import AsyncClient, Context, Worker
from fairlane.errors import SetupError
from fairlane.model.quality_check import OnFail, QualityCheck
from fairlane.model.service import Service
from fairlane.model.state import Code, State
from fairlane.units import SECOND
from tests.worker.scene import WAYS, Scene, Way, scene
from tests.world import catalog

pytestmark = pytest.mark.timeout(60)


def checked(on_fail: OnFail = OnFail.RETRY) -> Any:
    return catalog(
        Service("draw", max_attempts=3, quality_check=QualityCheck("draw.quality", on_fail)),
        Service("draw.quality"),
    )


def painter(**more: Any) -> Worker:
    """Draws what it is asked for, with the number of the attempt."""
    worker = Worker(**more)

    @worker.task("draw")
    async def draw(what: str, ctx: Context) -> str:
        return f"{what} {ctx.attempt}"

    return worker


async def seen(at: Scene, job: str) -> list[tuple[bool | None, str]]:
    return [
        (each.verdict.passed, each.verdict.reason) for each in (await at.engine.view(job)).quality
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_a_function_judges_the_result_of_a_task(tmp_path: Path, way: Way) -> None:
    """I18: a plain function with all it can ask for; the second picture is good enough."""
    worker, asked = painter(), []

    @worker.quality_check("draw")
    def is_good(result: str, parameters: Any, ctx: Context) -> tuple[bool, str]:
        asked.append((result, parameters, ctx.checked_step, ctx.task_type))
        return result.endswith("2"), "only the second is good"

    async with scene(tmp_path, checked()) as at, at.working(worker, way):
        job = await at.run("draw", {"what": "heron"})
        assert (job.state, job.step) == (State.COMPLETED, 2)
        assert asked == [
            ("heron 1", {"what": "heron"}, "step_0_draw", "draw.quality"),
            ("heron 2", {"what": "heron"}, "step_0_draw", "draw.quality"),
        ]
        assert await seen(at, job.id) == [(True, "only the second is good")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("verdict", [False, {"passed": False, "score": 0.1}, (False, "")])
async def test_an_async_function_may_return_a_bool_a_tuple_or_a_dict(
    tmp_path: Path, way: Way, verdict: Any
) -> None:
    worker = painter()

    @worker.quality_check("draw")
    async def is_good(result: str) -> Any:
        return verdict if result == "heron 1" else None

    async with scene(tmp_path, checked(OnFail.FAIL)) as at, at.working(worker, way):
        job = await at.run("draw", {"what": "heron"})
        assert job.error is not None
        assert (job.state, job.error.code) == (State.FAILED, Code.QUALITY)
        assert [passed for passed, _ in await seen(at, job.id)] == [False]


@pytest.mark.parametrize("way", WAYS)
async def test_a_check_does_not_load_the_model_of_its_job(tmp_path: Path, way: Way) -> None:
    loaded: list[str] = []

    def load(name: str) -> str:
        loaded.append(name)
        return name

    worker, judge = painter(loader=load), Worker(loader=load)

    @judge.quality_check("draw")
    def is_good(result: str, ctx: Context) -> bool:
        return result == "heron 1" and ctx.model is None

    async with scene(tmp_path, checked()) as at, at.working(worker, way), at.working(judge, way):
        job = await at.run("draw", {"what": "heron"}, model="oil")
        assert job.state is State.COMPLETED
        assert loaded == ["oil"]


async def test_a_check_declares_its_own_time_limit(tmp_path: Path) -> None:
    worker = painter()

    @worker.quality_check("draw", timeout=7)
    def is_good(result: str) -> bool:
        return bool(result)

    async with scene(tmp_path, checked()) as at, at.working(worker, "direct"):
        await at.run("draw", {"what": "heron"})
        job = await at.run("draw", {"what": "heron"})
        assert [step.timeout for step in job.plan] == [600 * SECOND, 7 * SECOND]


async def test_a_job_of_a_check_alone_is_invalid(tmp_path: Path) -> None:
    worker = painter()

    @worker.quality_check("draw")
    def is_good(result: str) -> bool:
        return bool(result)

    async with scene(tmp_path, checked()) as at, at.working(worker, "direct"):
        job = await at.run("draw.quality", {"result": "mine"})
        assert job.error is not None
        assert job.error.code is Code.INVALID_INPUT


def test_a_check_takes_the_result_and_is_declared_once() -> None:
    worker = Worker()
    with pytest.raises(SetupError, match='needs an argument "result"'):
        worker.quality_check("draw")(lambda picture: picture == "heron")
    worker.quality_check("draw")(lambda result: result == "heron")
    with pytest.raises(SetupError, match="two functions"):
        worker.quality_check("draw")(lambda result: result == "heron")


async def test_a_client_sees_the_result_and_the_verdict(tmp_path: Path) -> None:
    """The output of the check is not the result."""
    worker = painter()

    @worker.quality_check("draw")
    def is_good(result: str) -> dict[str, Any]:
        return {"passed": False, "reason": "too pale", "seen": result}

    async with scene(tmp_path, checked(OnFail.MARK)) as at, at.working(worker, "http"):
        job = await at.run("draw", {"what": "heron"})
        async with AsyncClient(at.served.url) as client:
            found = await client.get(job.id)
        assert found.result == "heron 1"
        assert found.sent["quality"] == [
            {
                "step": "step_1_draw.quality",
                "checked_step": "step_0_draw",
                "passed": False,
                "reason": "too pale",
            }
        ]
