"""S7, S13: task types are counted for each tenant, shown to it alone, and forgotten with their
jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fairlane.engine.job_actions import StrictServices
from fairlane.model.catalog import Catalog
from fairlane.model.key import Role
from fairlane.model.service import Executor, Overrun, Service
from fairlane.model.worker import Worker
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.world import TIERS, World

pytestmark = pytest.mark.every_store
MOST = 3
SETTINGS = Catalog(TIERS, [Service("configured")], task_defaults=Service("task"))


@pytest.fixture
async def world(tmp_path: Path, _stores: None) -> AsyncIterator[World]:
    async with World(SETTINGS, tmp_path / "ledger.db") as opened:
        core_of(opened.engine).task_types.most = MOST
        yield opened


async def submitted(client: httpx2.AsyncClient, name: str, **more: Any) -> httpx2.Response:
    return await client.post("/api/v1/tasks", json={"task_type": name}, **more)


async def test_one_tenant_does_not_use_up_the_task_types_of_another(
    world: World, served: Gateway
) -> None:
    async with (
        served.client(await served.key()) as ours,
        served.client(await served.key(tenant="other")) as theirs,
    ):
        for n in range(MOST):
            assert (await submitted(ours, f"ours{n}")).status_code == 202
        refused = await submitted(ours, "one_more")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_task_types")
        assert (refused.json()["limit"], int(refused.headers["retry-after"]) > 0) == (MOST, True)
        assert (await submitted(ours, "ours0")).status_code == 202
        assert (await submitted(ours, "configured")).status_code == 202
        assert (await submitted(theirs, "theirs")).status_code == 202
        many = [{"service": f"batch{n}"} for n in range(MOST)]
        batch = await theirs.post("/api/v1/jobs:batch", json={"jobs": many})
        assert [each["status"] for each in batch.json()["results"]] == [202, 202, 429]


async def test_a_request_that_is_sent_again_is_known_although_there_are_too_many_types(
    world: World, served: Gateway
) -> None:
    async with served.client(await served.key()) as client:
        again = {"headers": {"Idempotency-Key": "one"}}
        first = await submitted(client, "gone", **again)
        await client.delete(f"/api/v1/tasks/{first.json()['task_id']}")
        await world.pass_time(10, sweeps=60)
        for n in range(MOST):
            await submitted(client, f"t{n}")
        second = await submitted(client, "gone", **again)
        assert (second.status_code, second.json()["task_id"]) == (200, first.json()["task_id"])


async def test_a_type_whose_jobs_have_ended_makes_room_for_another(
    world: World, served: Gateway
) -> None:
    async with served.client(await served.key()) as client:
        tasks = [(await submitted(client, f"t{n}")).json()["task_id"] for n in range(MOST)]
        (lease,) = await world.claim(1, Worker("w", frozenset({"t0"})))
        world.clock.advance(10_000_000)
        assert (await submitted(client, "new")).status_code == 429  # t0 runs
        await world.engine.complete(lease)
        world.clock.advance(10_000_000)
        assert (await submitted(client, "new")).status_code == 202
        await client.delete(f"/api/v1/tasks/{tasks[1]}")
        await world.pass_time(10, sweeps=60)
        shown = (await client.get("/queue/status")).json()["services"]
        assert sorted(shown) == ["configured", "new", "t2"]


async def test_only_the_own_task_types_are_shown(world: World, served: Gateway) -> None:
    async with (
        served.client(await served.key()) as ours,
        served.client(await served.key(tenant="other")) as theirs,
        served.client(await served.key(Role.READ, tenant="other")) as reader,
    ):
        await submitted(ours, "secret_project")
        await submitted(theirs, "plain")
        for client, own in ((ours, "secret_project"), (theirs, "plain"), (reader, "plain")):
            status = (await client.get("/queue/status")).json()["services"]
            assert sorted(status) == sorted(["configured", own])
            assert status[own]["waiting"] == 1
            stats = (await client.get("/api/v1/queue/stats")).json()
            assert stats["unrunnable_by_type"] == {own: 1}
            assert stats["unrunnable"] == 2


async def test_the_metrics_name_the_task_types_of_others_to_operators_only(
    world: World, served: Gateway
) -> None:
    async with (
        served.client(await served.key()) as ours,
        served.client(await served.key(tenant="other")) as theirs,
        served.client(await served.key(Role.READ)) as operator,
    ):
        for name in ("secret_project", "secret_too", "configured"):
            await submitted(ours, name)
        assert len(await world.claim(3)) == 3
        for client, names in (
            (ours, {"secret_project", "secret_too", "configured"}),
            (operator, {"secret_project", "secret_too", "configured"}),
            (theirs, {"other", "configured"}),
        ):
            lines = (await client.get("/metrics")).text.splitlines()
            told = {each for each in lines if each.startswith("fairlane_jobs_claimed_total{")}
            assert {each.split('"')[1] for each in told} == names
            counted = [
                each for each in lines if each.startswith("fairlane_queue_wait_seconds_count")
            ]
            assert sum(float(each.split()[-1]) for each in counted) == 3
        assert "secret_project" not in (await theirs.get("/metrics")).text


async def test_a_restart_knows_whose_task_types_wait(world: World) -> None:
    await world.submit("resize")
    await world.restart()
    await world.engine.rebuild()
    assert core_of(world.engine).task_types.of("default") == {"resize"}


@pytest.mark.usefixtures("_stores")
async def test_a_worker_that_names_no_types_gets_tasks_beside_called_services(
    tmp_path: Path,
) -> None:
    called = Service("called", Executor.HTTP)
    settings = Catalog(TIERS, [called], task_defaults=Service("task"))
    async with (
        World(settings, tmp_path / "ledger.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        await world.submit("called")
        await world.submit("resize")
        hello = await client.post("/internal/workers/register", json={"capabilities": []})
        path = f"/internal/workers/{hello.json()['worker_id']}/poll"
        got = await client.post(path, json={"available_capacity": 5, "wait_seconds": 1})
        assert [each["task_type"] for each in got.json()["tasks"]] == ["resize"]


def test_a_task_type_that_was_never_configured_is_as_strict_as_the_defaults() -> None:
    """I8: its slots stay taken when it is cancelled."""
    strict = Service("task", overrun=Overrun.STRICT)
    found = StrictServices(Catalog(TIERS, task_defaults=strict))
    assert "anything" in found
    assert "anything" not in StrictServices(Catalog(TIERS, task_defaults=Service("task")))
    assert "gone" not in StrictServices(Catalog(TIERS, [strict]))
