"""The number that an autoscaler reads: running jobs, and waiting jobs that more workers could
start."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.model.worker import Worker
from tests.api.server import Gateway
from tests.world import World

pytestmark = [pytest.mark.every_store, pytest.mark.timeout(60)]


async def scale(served: Gateway, service: str) -> dict[str, Any]:
    async with served.client() as client:
        answer = await client.get(f"/api/v1/scale/{service}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


async def test_without_a_limit_every_waiting_job_counts(world: World, served: Gateway) -> None:
    for _ in range(5):
        await world.submit("work")
    await world.claim(2)
    found = await scale(served, "work")
    assert found == {"service": "work", "waiting": 3, "running": 2, "startable": 3, "value": 5}


async def test_a_service_at_its_limit_does_not_scale(world: World, served: Gateway) -> None:
    """A long queue before a limit of one: more workers would have nothing to do."""
    for _ in range(5):
        await world.submit("scarce")
    assert (await scale(served, "scarce"))["value"] == 1
    lease = await world.claim_one(Worker("w", services=frozenset({"scarce"})))
    found = await scale(served, "scarce")
    assert (found["running"], found["startable"], found["value"]) == (1, 0, 1)
    await world.engine.complete(lease)
    assert (await scale(served, "scarce"))["value"] == 1


async def test_busy_workers_are_not_removed_when_the_queue_is_empty(
    world: World, served: Gateway
) -> None:
    await world.submit("work")
    await world.claim_one()
    found = await scale(served, "work")
    assert (found["waiting"], found["value"]) == (0, 1)


async def test_the_limit_of_a_region_bounds_it(world: World, served: Gateway) -> None:
    for _ in range(6):
        await world.submit("second", regions=("EU",))
    found = await scale(served, "second")
    assert (found["waiting"], found["startable"]) == (6, 2)


async def test_a_paused_service_counts_only_what_runs(world: World, served: Gateway) -> None:
    await world.submit("work")
    await world.submit("work")
    await world.claim_one()
    async with served.client() as client:
        paused = await client.put("/admin/services/work", json={"paused": True})
        assert paused.status_code == 200
    assert (await scale(served, "work"))["value"] == 1


async def test_an_unknown_service_is_not_found(served: Gateway) -> None:
    async with served.client() as client:
        answer = await client.get("/api/v1/scale/nothing")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
