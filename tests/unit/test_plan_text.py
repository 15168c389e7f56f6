"""The stored form of a plan: what older versions do not know is written only if it is set."""

from __future__ import annotations

import pytest

from fairlane.ledger.rows import plan, plan_text
from fairlane.model.quality_check import OnFail
from fairlane.model.service import Executor
from fairlane.model.step import Step

PLAIN = Step("generate", Executor.PULL, "generate||", 60_000_000, 3, 5)
TIMED = PLAIN._replace(backoff=(1_000_000,), timeout_given=True)
CHECK = PLAIN._replace(service="generate.quality", quality_check=OnFail.MARK)


@pytest.mark.parametrize(("step", "values"), [(PLAIN, 6), (TIMED, 8), (CHECK, 9)])
def test_a_step_is_stored_with_as_few_values_as_it_needs(step: Step, values: int) -> None:
    assert len(step.as_list()) == values
    assert plan(plan_text((step,))) == (step,)


def test_a_plan_without_a_check_has_the_text_of_older_versions() -> None:
    assert plan_text((PLAIN,)) == '[["generate","pull","generate||",60000000,3,5]]'
