"""What `fairlane bench --tasks` measures with works, and a high task starts next."""

from __future__ import annotations

import pytest

from fairlane.bench import tasks

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.timeout(60),
    pytest.mark.parametrize("opened", [tasks.in_the_program, tasks.over_http]),
]


async def test_a_high_task_starts_before_low_ones_that_nobody_has_taken(opened: tasks.Open) -> None:
    """No more start before it than its worker had taken: nothing is fetched ahead of room."""
    assert await tasks.passed_by(opened, 300, capacity=10, high=3) <= 10


async def test_drains_and_waits_are_measured(opened: tasks.Open) -> None:
    assert await tasks.drained(opened, 100, capacity=10) > 0
    p50, p99 = await tasks.latencies(opened, 5)
    assert 0 < p50 <= p99
