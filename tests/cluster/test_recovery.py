"""Worker processes die in real time, and others do their work."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import NewFleet
from tests.cluster.recovery import recovery


async def test_work_of_killed_processes_runs_again_when_its_lease_is_over(
    new_fleet: NewFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """I4, I1: the short form, with a lease of 2 s; `python -m tests.cluster.recovery` is the long
    one. The bound is generous: this machine may be busy."""
    figures = await recovery(await new_fleet(), jobs=40, lasts=0.2, heartbeat=2 / 3)
    with capsys.disabled():
        print(f"\n{figures}", end=" ")
    assert figures.accepted_twice == 0
    assert figures.interrupted > 0
    assert max(figures.again_after) < 15
