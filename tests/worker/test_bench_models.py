"""What `fairlane bench --models` measures with works: real processes load models and run jobs."""

from __future__ import annotations

import pytest

from fairlane.bench.models import (
    RuleOutcome,
    RuleUnderLoad,
    WaitSeconds,
    arrivals,
    markdown,
    measured,
)

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]


@pytest.mark.parametrize("called", [False, True], ids=["pulled", "called"])
async def test_loads_and_waits_are_measured(called: bool) -> None:
    """A high load: the jobs arrive almost at once."""
    cell = RuleUnderLoad("residency", 20, 6, 2 if called else 1, called, on_cluster=False)
    found = await measured(cell)
    assert found.counted == 5
    assert 0 <= found.loads <= 5
    assert 0 < found.everyone.mean <= found.everyone.p95


def test_the_same_jobs_arrive_under_every_rule() -> None:
    cells = [RuleUnderLoad(rule, 0.8, 50, 1, False, False) for rule in ("none", "batch")]
    assert arrivals(cells[0]) == arrivals(cells[1])


def test_the_table_has_a_line_for_each_rule() -> None:
    cell, waits = RuleUnderLoad("batch", 0.8, 50, 1, False, False), WaitSeconds(1.25, 3)
    found = RuleOutcome(cell, 45, 9, 0.081, waits, waits, waits, 2)
    assert markdown([found]).splitlines()[2] == (
        "| 80% | `batch` | 9 of 45 jobs | 8.1% | 1.2, 3.0 s | 1.2, 3.0 s | 1.2, 3.0 s | 2 |"
    )
