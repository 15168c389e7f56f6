"""Worker processes die in real time, and others do their work."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import NewFleet
from tests.cluster.recovery import AT_ONCE, recovery


async def test_work_of_killed_processes_runs_again_when_its_lease_is_over(
    new_fleet: NewFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """I4, I1: the short form, with a lease of 2 s. The bound is generous: this machine may be
    busy."""
    figures = await recovery(await new_fleet(), jobs=40, lasts=0.2, heartbeat=2 / 3)
    with capsys.disabled():
        print(f"\n{figures}", end=" ")
    assert figures.accepted_twice == 0
    assert figures.interrupted > 0
    assert max(figures.again_after) < 15


@pytest.mark.long
async def test_sixty_jobs_survive_three_killed_processes_with_default_settings(
    new_fleet: NewFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """I4, I1: half a second each, a lease of 15 s, a back-off of at most 2 s that begins when the
    lease ends: whatever was interrupted runs again within 18 s."""
    figures = await recovery(await new_fleet(), jobs=60, lasts=0.5, heartbeat=5, deaths=3)
    with capsys.disabled():
        print(f"\n{figures}", end=" ")
    assert (figures.jobs, figures.accepted_twice) == (60, 0)
    assert figures.interrupted >= 3 * AT_ONCE - 3, "each had its hands full"
    assert max(figures.again_after) <= 18
