"""A process dies before or after every statement and every verb of the index, once at each place.
Whatever it had answered stays true, whatever it had not answered happened once or not at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.servers.process import temporary_folder
from tests.crash.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
KEPT_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a dying process loses nothing that the kernel has


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = KEPT_IN_MEMORY if os.access(KEPT_IN_MEMORY, os.W_OK) else None
    made = temporary_folder("crash", memory)
    yield made
    shutil.rmtree(made)


OFTEN = ("claim", "settle")
"""What happens to every job; the other sweeps have time in a stage of their own."""


@pytest.mark.parametrize(
    "scenario",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in SCENARIOS],
)
def test_a_crash_at_any_point_loses_nothing_and_doubles_nothing(
    scenario: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I1 no accepted job is lost, I6 an answer that never came is harmless, I7 and I10 no slot too
    many and none leaked, I14 no credit lost, I20 one result a step, I24 the outbox names what the
    index was not told, I26 the index is rebuilt as the ledger says."""
    swept = subprocess.run(
        [sys.executable, "-m", "tests.crash.child", scenario, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert swept.returncode == 0, swept.stderr
    found = json.loads(swept.stdout)
    points, failures = found["points"], found["failures"]
    with capsys.disabled():
        print(f"\n{scenario}: {len(points)} points, {found['aftermaths']} aftermaths", end=" ")
    assert {"before COMMIT", "after COMMIT"} <= set(points)
    assert any(point.startswith("after index.") for point in points)
    assert not failures, f"{len(failures)} of {len(points)} points\n" + "\n".join(failures[:5])
