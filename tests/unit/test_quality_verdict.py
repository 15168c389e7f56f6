"""What counts as the verdict of a quality check, and which output is a job's result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlane.model.job import Job
from fairlane.model.job_result import result_of
from fairlane.model.quality_check import MAX_REASON_CHARACTERS, OnFail, QualityVerdict, verdict_of
from fairlane.model.service import Executor
from fairlane.model.state import State
from fairlane.model.step import Step


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        (True, QualityVerdict(passed=True)),
        (False, QualityVerdict(passed=False)),
        ({"passed": True, "score": 0.9}, QualityVerdict(passed=True)),
        ({"passed": False, "reason": "too quiet"}, QualityVerdict(False, "too quiet")),
        ({"passed": False, "reason": 7}, QualityVerdict(passed=False)),
        ({"passed": None, "reason": "down"}, QualityVerdict(None, "down")),
        ({"passed": 1}, None),
        ({"passed": "true"}, None),
        ({"ok": True}, None),
        (1, None),
        (None, None),
        ([True], None),
    ],
)
def test_a_verdict_is_a_boolean_or_an_object_with_passed(
    output: Any, verdict: QualityVerdict | None
) -> None:
    assert verdict_of(output) == verdict


def test_a_long_reason_is_cut() -> None:
    verdict = verdict_of({"passed": False, "reason": "x" * 10_000})
    assert verdict is not None
    assert verdict.reason == "x" * MAX_REASON_CHARACTERS


def _job(*steps: Step, state: State = State.COMPLETED) -> Job:
    return cast("Job", SimpleNamespace(plan=steps, state=state))


WORK = Step("draw", Executor.PULL, "draw||", 1, 1)
CHECK = Step("draw.quality", Executor.PULL, "draw.quality||", 1, 1, quality_check=OnFail.RETRY)


def test_the_result_is_the_output_of_the_last_step_that_is_no_check() -> None:
    context = {
        "step_0_draw": {"data": "picture"},
        "step_0_draw__attempts": 1,
        "step_1_draw.quality": {"data": {"passed": True}},
        "step_1_draw.quality__attempts": 1,
    }
    assert result_of(_job(WORK, CHECK), context) == "picture"
    assert result_of(_job(WORK, CHECK, WORK), {**context, "step_2_draw": {"data": 2}}) == 2


@pytest.mark.parametrize("state", [state for state in State if state is not State.COMPLETED])
def test_only_a_completed_job_has_a_result(state: State) -> None:
    assert result_of(_job(WORK, CHECK, state=state), {"step_0_draw": {"data": 1}}) is None


def test_a_job_without_a_finished_step_has_no_result() -> None:
    assert result_of(_job(WORK, CHECK), {"step_0_draw__attempts": 1}) is None
