"""The demo shows what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlane.cli import app
from fairlane.compose import embedded
from fairlane.demo.gateway import playing
from fairlane.presets import gateway

pytestmark = pytest.mark.embedded


def test_the_demo_runs_keeps_its_limits_and_says_where_to_look() -> None:
    done = CliRunner().invoke(app, ["demo", "--seconds", "1", "--speed", "1000"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "See a limit broken: curl -d" in said
    assert "0 calls above a limit, the ledger is sound" in said


async def test_everybody_is_served_by_real_services(tmp_path: Path) -> None:
    async with await embedded(gateway(), tmp_path / "demo.db") as engine:
        async with playing(engine, speed=2000) as scene:
            first = scene.services[0]
            await first.until(lambda it: it.finished >= 10)
        assert all(service.most <= service.limit for service in scene.services)
        assert scene.broken == 0
        assert not any(await engine.check())
