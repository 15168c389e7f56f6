"""What `fairlane bench --http` measures with works against a server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairlane.bench import generation, http_client, overload
from fairlane.bench.http_client import BenchServer
from fairlane.model.state import State
from fairlane.presets import tasks
from tests.api.server import gateway
from tests.world import World


async def test_every_way_of_measuring_gets_its_jobs_accepted(tmp_path: Path) -> None:
    async with World(tasks(), tmp_path / "ledger.db") as world, gateway(world.engine) as served:
        speed = await http_client.single_submits(served.port, 20, connections=4)
        assert speed.p50 <= speed.p99
        await http_client.batch_submits(served.port, 20, 10)
        await http_client.paced_submits(served.port, 1000, 0.02)
        memory = await http_client.idle_sockets(BenchServer(served.port, os.getpid()), 5, seconds=0)
        assert memory.before > 0
        assert await world.engine.count(State.QUEUED) == 65


@pytest.mark.long
async def test_the_generation_routes_can_be_measured() -> None:
    found = await generation.measured(generation.SETUPS[0], 25, 2_000, on_cluster=False)
    assert {each.what for each in found} == {*generation.ROUTES}
    assert all(value > 0 for each in found for value in each.values)


@pytest.mark.long
async def test_an_overload_loses_nothing_and_answers_everybody() -> None:
    found = {each.what: each.median for each in await overload.measured(0.2, 0.5)}
    for what in ("other answers, hangs", "connection errors", "leases lost", "accepted jobs lost"):
        assert found[what] == 0, what
    assert 0 < found["answered"] == found["sent"]
    assert found["offered"] == found["sent"] + found["not sent"]
