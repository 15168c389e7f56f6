"""S7: a key without `act_as` acts for nobody else, also within its tenant."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from fairlane.api.auth.roles import ALLOWED
from fairlane.api.routing import GuardedRoute
from fairlane.model.attempt import Fault
from fairlane.model.key import Role
from fairlane.model.service import Executor, Service
from fairlane.model.worker import Worker
from tests.api.server import TENANT, Gateway, gateway
from tests.world import World, catalog

pytestmark = pytest.mark.every_store
BODIES = {"renew": {"lease": "x"}, "release": {"lease": "x"}}
ADA = {"service": "work", "user_id": "ada"}
FAN_OUT = {"service": "work", "matrix": {"question": ["a", "b"]}, "input_data": {}}


def doors(served: Gateway) -> list[tuple[str, str]]:
    """Every way to a job that is open to clients."""
    routes = [each for each in served.app.api.routes if isinstance(each, GuardedRoute)]
    return [
        (method, route.path)
        for route in routes
        for method in route.methods or ()
        if Role.CLIENT in ALLOWED[route.access or "admin"]
        and ("{job_id}" in route.path or "{execution_id}" in route.path)
    ]


async def knock(client: httpx2.AsyncClient, method: str, path: str, job: str) -> tuple[int, bytes]:
    path = path.replace("{job_id}", job).replace("{execution_id}", job)
    sent = BODIES.get(path.rpartition("/")[2])
    answer = await client.request(method, path, json=sent, headers={"X-Request-ID": "same"})
    return answer.status_code, answer.content


async def posted(client: httpx2.AsyncClient, job: dict[str, Any]) -> str:
    return str((await client.post("/api/v1/jobs", json=job)).json()["job_id"])


async def test_a_key_that_acts_for_itself_finds_no_job_of_another_key(
    world: World, served: Gateway
) -> None:
    shop, alone = await served.key(), await served.key(act_as=False)
    async with (
        served.client(shop) as theirs,
        served.client(alone) as mine,
        served.client(await served.key(tenant="other")) as foreign,
    ):
        jobs = [await posted(theirs, ADA), await posted(theirs, FAN_OUT)]
        cells = (await theirs.get(f"/api/v1/jobs/{jobs[1]}/executions")).json()["executions"]
        for job in (*jobs, cells[0]["execution_id"]):
            for method, path in doors(served):
                told = await knock(mine, method, path, job)
                assert told[0] == 404, (method, path)
                assert told == await knock(foreign, method, path, job), (method, path)
        assert len(doors(served)) > 12
        assert (await theirs.get(f"/api/v1/jobs/{jobs[0]}")).json()["status"] == "queued"


async def test_a_key_that_acts_for_itself_sees_and_moves_its_own(
    world: World, served: Gateway
) -> None:
    async with (
        served.client(await served.key()) as theirs,
        served.client(await served.key(act_as=False)) as mine,
    ):
        other = await posted(theirs, ADA)
        own, many = await posted(mine, {"service": "work"}), await posted(mine, FAN_OUT)
        seen = (await mine.get(f"/api/v1/jobs/{own}")).json()
        assert (seen["status"], seen["position"]) == ("queued", 2), "the line is everybody's"
        listed = (await mine.get("/api/v1/jobs")).json()["jobs"]
        assert [each["job_id"] for each in listed] == [many, own]
        assert (await mine.get("/api/v1/jobs?user_id=ada")).json()["jobs"] == []
        cells = (await mine.get(f"/api/v1/jobs/{many}/executions")).json()["executions"]
        assert (await mine.get(f"/api/v1/executions/{cells[0]['execution_id']}")).is_success
        assert (await mine.post(f"/api/v1/jobs/{own}/ticket")).is_success
        assert (await mine.delete(f"/api/v1/jobs/{own}")).is_success
        assert len((await theirs.get("/api/v1/jobs")).json()["jobs"]) == 3
        for role in (Role.READ, Role.ADMIN):
            async with served.client(await served.key(role, act_as=False)) as tenant:
                assert (await tenant.get(f"/api/v1/jobs/{other}")).is_success
                assert len((await tenant.get("/api/v1/jobs")).json()["jobs"]) == 3


async def test_a_key_that_acts_for_itself_hears_only_of_its_own(
    world: World, served: Gateway
) -> None:
    alone = await served.key(act_as=False)
    async with served.client(await served.key()) as theirs, served.client(alone) as mine:
        jobs = [await posted(theirs, ADA), await posted(mine, {"service": "work"})]
        headers = {"Authorization": f"Bearer {alone}"}
        await world.drain()
        for job, code in zip(jobs, (4404, 1000), strict=True):
            url = f"ws://127.0.0.1:{served.port}/ws/{job}"
            async with connect(url, additional_headers=headers) as socket:
                heard = 0
                with suppress(ConnectionClosed):
                    while await socket.recv():
                        heard += 1
                assert (socket.close_code, heard > 0) == (code, code == 1000)


async def test_what_is_left_of_a_job_is_told_only_to_the_key_that_sent_it(
    world: World, served: Gateway
) -> None:
    job = {"service": "scarce"}
    async with (
        served.client(await served.key(act_as=False), headers={"Idempotency-Key": "k"}) as mine,
        served.client(await served.key(act_as=False)) as other,
    ):
        gone = await posted(mine, job)
        await world.engine.fail(await world.claim_one(), Fault.TRANSIENT)
        assert await world.engine.purge([gone], TENANT) == 1
        assert (await mine.get(f"/api/v1/jobs/{gone}")).status_code == 410
        assert (await other.get(f"/api/v1/jobs/{gone}")).status_code == 404


@pytest.mark.usefixtures("_stores")
async def test_nobody_waits_on_for_a_slot_of_another_key(tmp_path: Path) -> None:
    held = catalog(Service("held", executor=Executor.CALLER, limit=1))
    async with (
        World(held, tmp_path / "held.db") as world,
        gateway(world.engine) as served,
        served.client(await served.key()) as theirs,
        served.client(await served.key(act_as=False)) as mine,
    ):
        wish = {"service": "held", "wait_seconds": 0}
        slot = (await theirs.post("/api/v1/slots", json=wish)).json()["slot_id"]
        again = {**wish, "slot_id": slot}
        assert (await theirs.post("/api/v1/slots", json=again)).status_code == 200
        assert (await mine.post("/api/v1/slots", json=again)).status_code == 404


async def test_workers_show_a_key_that_acts_for_itself_only_its_own_tasks(
    world: World, served: Gateway
) -> None:
    async with (
        served.client(await served.key()) as theirs,
        served.client(await served.key(act_as=False)) as mine,
    ):
        jobs = [await posted(theirs, ADA), await posted(mine, {"service": "work"})]
        worker = await world.engine.register(Worker("w"))
        assert len(await world.claim(2, worker)) == 2
        for client, shown in ((theirs, jobs), (mine, jobs[1:])):
            (seen,) = (await client.get("/api/v1/workers")).json()["workers"]
            assert (seen["current_load"], sorted(seen["current_tasks"])) == (2, sorted(shown))
