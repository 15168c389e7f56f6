"""What-if: the jobs of the last hour with another limit, simulated in a process of its own."""

from __future__ import annotations

import asyncio
import sys

import pytest

from fairlane.clock import seconds
from fairlane.model.key import Role
from fairlane.model.worker import Worker
from tests.api.server import Gateway
from tests.world import World


@pytest.fixture(autouse=True)
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine takes seconds to start Python."""
    monkeypatch.setattr("fairlane.api.routes.what_if.TIME_LIMIT_SECONDS", 60.0)


async def past(world: World, jobs: int) -> None:
    """Jobs of 10 s each that arrive every 5 s: twice what one slot can do."""
    for n in range(jobs):
        await world.submit("scarce", user=f"u{n % 3}", tier=("high", "low")[n % 2])
        world.clock.advance(seconds(5))
    lease = await world.claim_one(Worker("w"))
    world.clock.advance(seconds(10))
    await world.engine.complete(lease)


@pytest.mark.every_store
async def test_a_second_slot_shortens_the_waits_of_the_last_hour(
    world: World, served: Gateway
) -> None:
    await past(world, 40)
    async with served.client(await served.key(Role.ADMIN)) as client:
        body = {"service": "scarce", "limit": 2}
        answer = await client.post("/admin/simulate", json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["arrivals"] == 40
        assert found["seconds_simulated"] == pytest.approx(39 * 5)
        assert found["today"]["low"]["p95"] > 60
        assert found["then"]["low"]["p95"] < 20
        again = (await client.post("/admin/simulate", json=body)).json()
        assert again == found, "the same question has the same answer"


async def test_only_the_last_hour_counts(world: World, served: Gateway) -> None:
    await past(world, 3)
    world.clock.advance(seconds(3600))
    async with served.client(await served.key(Role.ADMIN)) as client:
        body = {"service": "scarce", "limit": 2}
        assert (await client.post("/admin/simulate", json=body)).status_code == 404
        body = {"service": "none", "limit": 2}
        assert (await client.post("/admin/simulate", json=body)).status_code == 404


async def test_one_simulation_runs_at_a_time(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await past(world, 3)
    async with served.client(await served.key(Role.ADMIN)) as client:
        body = {"service": "scarce", "limit": 2}
        answers = await asyncio.gather(
            *(client.post("/admin/simulate", json=body) for _ in range(3))
        )
        assert sorted(each.status_code for each in answers) == [200, 503, 503]
        monkeypatch.setattr("fairlane.api.routes.what_if.TIME_LIMIT_SECONDS", 0.0)
        answer = await client.post("/admin/simulate", json=body)
        assert (answer.status_code, answer.json()["code"]) == (503, "busy")


@pytest.mark.parametrize("limit", [1, 2])
async def test_jobs_that_arrive_at_the_same_time_are_simulated(
    world: World, served: Gateway, limit: int
) -> None:
    for n in range(40):
        await world.submit("scarce", user=f"u{n % 3}", tier=("high", "low")[n % 2])
    async with served.client(await served.key(Role.ADMIN)) as client:
        body = {"service": "scarce", "limit": limit}
        answer = await client.post("/admin/simulate", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["seconds_simulated"] == 0


async def test_a_simulation_that_takes_too_long_is_ended_and_the_answer_says_so(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await past(world, 3)
    endless = (sys.executable, "-c", "while True: pass")
    monkeypatch.setattr("fairlane.api.routes.what_if.PROGRAM", endless)
    monkeypatch.setattr("fairlane.api.routes.what_if.TIME_LIMIT_SECONDS", 0.5)
    async with served.client(await served.key(Role.ADMIN)) as client:
        answer = await client.post("/admin/simulate", json={"service": "scarce", "limit": 2})
        assert (answer.status_code, answer.json()["code"]) == (503, "busy")
        assert "longer than 0.5 s" in answer.json()["detail"]
