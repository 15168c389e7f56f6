"""Whatever fits the description, and whatever does not, is answered as the description says."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from fairlane.model.key import Role
from fairlane.presets import tasks
from tests.api.server import gateway
from tests.world import World

SETTINGS = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.long
async def test_every_route_keeps_to_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All checks: no 5xx, no undocumented status, shape or header, no way around keys."""
    monkeypatch.setattr(
        "fairlane.api.auth.brute_force.MAX_FAILURES", 1_000_000
    )  # it tries wrong keys all the time
    async with World(tasks(), tmp_path / "ledger.db") as world, gateway(world.engine) as served:
        key = await served.key(Role.ADMIN, set_priority=True)
        ticking = asyncio.create_task(tick(world))
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")),
            f"--config-file={SETTINGS}",
            "run",
            f"{served.url}/openapi.json",
            f"--header=Authorization: Bearer {key}",
            "--checks=all",
            "--max-examples=4",
            "--seed=1",
            "--warnings=off",
            "--no-color",
            cwd=tmp_path,
            stdout=PIPE,
            stderr=STDOUT,
        )
        said, _ = await process.communicate()
        ticking.cancel()
        assert process.returncode == 0, said.decode()


async def tick(world: World) -> None:
    """Polls wait on the queue's clock: let it run, and fast."""
    while True:
        world.clock.advance(1_000_000)
        await asyncio.sleep(0.01)
