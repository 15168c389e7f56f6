"""Quality checks that are called over HTTP: what the judge is sent, and what its answers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane.demo.services import SimulatedExecution, SimulatedService
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog
from fairlane.model.job_result import result_of
from fairlane.model.quality_check import OnFail, QualityCheck
from fairlane.model.state import Code, State
from tests.dispatch.scene import Held, Scene, called, comes_true, scene
from tests.world import catalog


def checked(on_fail: OnFail = OnFail.RETRY, **judge: Any) -> Catalog:
    check = QualityCheck("draw.quality", on_fail)
    return catalog(
        called("draw", limit=1, max_attempts=3, quality_check=check),
        called("draw.quality", **{"max_attempts": 2, **judge}),
    )


class Judge:
    """Passes only what was drawn in this attempt or a later one."""

    def __init__(self, good_from: int) -> None:
        self.good_from = good_from

    async def __call__(self, call: SimulatedExecution) -> Any:
        drawn = call.context[call.checked_step or ""]["data"]["attempt"]
        return {"passed": drawn >= self.good_from, "reason": f"attempt {drawn}"}


async def draw(call: SimulatedExecution) -> Any:
    return {"attempt": call.attempt}


def services(judge: Any) -> tuple[SimulatedService, SimulatedService]:
    return SimulatedService("draw", 1, work=draw), SimulatedService("draw.quality", work=judge)


async def result(at: Scene, job: str) -> Any:
    found = await at.world.engine.view(job)
    return result_of(found.job, found.context)


async def test_rejected_work_is_called_again_until_the_judge_is_content(tmp_path: Path) -> None:
    """I18: each rejection costs the work an attempt, and only that."""
    async with scene(tmp_path, *services(Judge(3)), settings=checked()) as at:
        job = await at.run("draw", input={"what": "a heron"})
        assert job.state is State.COMPLETED
        assert await result(at, job.id) == {"attempt": 3}
        judge = at.services["draw.quality"].calls
        assert [call.checked_step for call in judge] == ["step_0_draw"] * 3
        assert [(call.step, call.attempt, call.params) for call in judge] == [
            (1, 1, {"what": "a heron"})
        ] * 3
        work = at.services["draw"].calls
        assert [(call.step, call.attempt, call.checked_step) for call in work] == [
            (0, 1, None),
            (0, 2, None),
            (0, 3, None),
        ]
        assert at.services["draw"].most == 1


async def test_a_judge_that_is_never_content_makes_a_dead_letter(tmp_path: Path) -> None:
    """I18: after as many attempts as the work has."""
    async with scene(tmp_path, *services(Judge(9)), settings=checked()) as at:
        job = await at.run("draw")
        assert job.error is not None
        assert (job.state, job.error.code) == (State.DEAD, Code.MAX_ATTEMPTS)
        assert job.error.message == "quality check: attempt 3"
        assert len(at.services["draw"].calls) == 3


async def test_a_judge_that_answers_nonsense_fails_the_job_at_the_check(tmp_path: Path) -> None:
    async def nonsense(_: SimulatedExecution) -> Any:
        return "fine"

    async with scene(tmp_path, *services(nonsense), settings=checked()) as at:
        job = await at.run("draw")
        assert job.error is not None
        assert (job.state, job.step, job.error.code) == (State.FAILED, 1, Code.SERVICE_ERROR)
        assert await result(at, job.id) is None
        context = (await at.world.engine.view(job.id)).context
        assert context["step_0_draw"]["data"] == {"attempt": 1}


async def test_the_work_serves_the_next_job_while_the_judge_thinks(tmp_path: Path) -> None:
    """I19: the one slot of the work is free."""
    judge = Held()
    async with scene(tmp_path, *services(judge), settings=checked(OnFail.MARK)) as at:
        jobs = [await at.world.submit("draw") for _ in range(2)]
        await at.services["draw.quality"].until(lambda service: service.running == 2)
        assert at.services["draw"].finished == 2
        judge.let_go()
        for job in jobs:
            assert (await at.ended(job)).state is State.COMPLETED


async def test_a_judge_that_drops_its_call_is_called_again_and_the_work_is_not(
    tmp_path: Path,
) -> None:
    """I18: the check pays with its own attempts."""
    async with scene(tmp_path, *services(Judge(1)), settings=checked()) as at:
        at.services["draw.quality"].switches.drops = 1
        job = await at.world.submit("draw")
        await at.until_attempts(job, 2)
        found = await at.world.job(job)
        assert (found.step, found.attempt) == (1, 1)
        await at.world.pass_time(3)
        assert (await at.ended(job)).state is State.COMPLETED
        assert len(at.services["draw"].calls) == 1
        assert len(at.services["draw.quality"].calls) == 2


@pytest.mark.embedded
async def test_an_advisory_judge_that_is_broken_does_not_stop_the_work(tmp_path: Path) -> None:
    async with scene(tmp_path, *services(None), settings=checked(OnFail.MARK)) as at:
        at.services["draw.quality"].switches.status = 500
        job = await at.run("draw")
        assert job.state is State.COMPLETED
        found = await at.world.engine.view(job.id)
        (verdict,) = [each.verdict for each in found.quality]
        assert (verdict.passed, verdict.reason) == (None, "draw.quality answered 500")


@pytest.mark.embedded
async def test_a_simulated_judge_is_content(tmp_path: Path) -> None:
    async with scene(tmp_path, *services(None), settings=checked()) as at:
        assert (await at.run("draw")).state is State.COMPLETED


@pytest.mark.embedded
async def test_a_cancelled_check_ends_the_job_and_its_late_verdict_counts_for_nothing(
    tmp_path: Path,
) -> None:
    judge = Held()
    async with scene(tmp_path, *services(judge), settings=checked()) as at:
        job = await at.world.submit("draw")
        await at.services["draw.quality"].until(lambda service: service.running == 1)
        await at.world.engine.cancel(job)
        judge.let_go()
        await comes_true(lambda: at.services["draw.quality"].running == 0)
        assert (await at.world.job(job)).state is State.CANCELLED
        attempts = await at.world.engine.attempts(job)
        assert Fault.QUALITY not in [each.fault for each in attempts]
