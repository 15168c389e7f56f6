"""What a request says is taken as it was meant, or refused with the reason."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from fairlane.api.routing import GuardedRoute
from fairlane.api.schemas.timestamps import iso, microseconds
from fairlane.dispatch.service_responses import Bad, understand
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog
from fairlane.model.endpoint import Endpoint
from fairlane.model.key import Key, Role
from fairlane.model.service import Region, Service
from fairlane.model.worker import Worker
from tests.api.server import Gateway
from tests.core import core_of
from tests.world import TIERS, World

pytestmark = pytest.mark.every_store
SETTINGS = Catalog(
    TIERS, [Service("work"), Service("ask", regions={"EU": Region("EU"), "US": Region("US")})]
)
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def world(tmp_path: Path, _stores: None) -> AsyncIterator[World]:
    async with World(SETTINGS, tmp_path / "ledger.db") as opened:
        yield opened


# --- times ---------------------------------------------------------------------------------------
TOO_FAR = (
    "9999-12-31T23:59:59.9999Z",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "1969-12-31T23:59:59Z",
)


@pytest.mark.parametrize("time", TOO_FAR)
async def test_a_key_ends_at_a_time_that_can_be_shown(
    world: World, served: Gateway, time: str
) -> None:
    async with served.client(await served.key(Role.ADMIN)) as client:
        before = (await client.get("/admin/keys")).json()
        answer = await client.post("/admin/keys", json={"role": "client", "expires_at": time})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
        assert "9999" in answer.json()["detail"]
        assert (await client.get("/admin/keys")).json() == before
        job = {"service": "work", "run_at": time}
        assert (await client.post("/api/v1/jobs", json=job)).status_code == 422


async def test_the_last_time_there_is_can_be_named(world: World, served: Gateway) -> None:
    last = "9999-12-31T23:59:59.999Z"
    async with served.client(await served.key(Role.ADMIN)) as client:
        answer = await client.post("/admin/keys", json={"role": "client", "expires_at": last})
        assert (answer.status_code, answer.json()["expires_at"]) == (201, last)
        assert iso(microseconds(last)) == last


async def test_keys_are_listed_although_one_was_made_to_end_after_the_last_time(
    world: World, served: Gateway
) -> None:
    later = 253_402_300_800_000_000
    old = Key("old", "acme", Role.CLIENT, "", created_at=0, expires_at=later)
    await core_of(world.engine).ledger.keys.add(old, "before")
    async with served.client(await served.key(Role.ADMIN)) as client:
        (shown,) = [
            each for each in (await client.get("/admin/keys")).json()["keys"] if each["id"] == "old"
        ]
        assert shown["expires_at"].startswith("9999-12-31T23:59:59")
        assert (await client.delete("/admin/keys/old")).status_code == 200


# --- numbers -------------------------------------------------------------------------------------
EXACT = (2**64 - 1, -(2**63), 2**53 + 1)


async def test_an_integer_stays_what_it_is_or_is_refused(world: World, served: Gateway) -> None:
    async with served.client() as client:

        async def sent(value: str) -> httpx2.Response:
            body = f'{{"service": "work", "input_data": {{"at": [{value}]}}}}'
            return await client.post("/api/v1/jobs", content=body, headers=JSON)

        for number in EXACT:
            made = await sent(str(number))
            assert made.status_code == 202
            shown = await client.get(f"/api/v1/jobs/{made.json()['job_id']}")
            assert shown.json()["input_data"] == {"at": [number]}
        for text in (str(2**64), str(-(2**63) - 1), "1" + "0" * 40, "1" * 5000):
            refused = await sent(text)
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
            assert "as text, in quotes" in refused.json()["detail"]
            assert len(refused.json()["detail"]) < 200
            assert (await sent(f'"{text}"')).status_code == 202
            assert (await sent(f"0.{text.removeprefix('-')}")).status_code == 202
        batch = f'{{"jobs": [{{"service": "work", "input_data": {2**64}}}]}}'
        answer = await client.post("/api/v1/jobs:batch", content=batch, headers=JSON)
        assert answer.status_code == 422


def test_a_service_that_answers_with_a_longer_integer_is_told_so() -> None:
    body = b'{"data": {"id": 18446744073709551616}}'
    answer = understand("work", Endpoint("http://here"), 200, body)
    assert isinstance(answer, Bad)
    assert (answer.fault, "18446744073709551616" in answer.message) == (Fault.SERVICE_ERROR, True)


# --- text ----------------------------------------------------------------------------------------
async def test_no_path_query_or_body_brings_a_nul_to_the_stores(
    world: World, served: Gateway
) -> None:
    """S14: PostgreSQL holds no text with U+0000."""
    routes = [each for each in served.app.api.routes if isinstance(each, GuardedRoute)]
    async with served.client() as client:
        for route in routes:
            names = [*route.param_convertors]
            for method in route.methods or ():
                for name in names:
                    path = route.path
                    for other in names:
                        path = path.replace(f"{{{other}}}", "a%00b" if other == name else "x")
                    answer = await client.request(method, path, json={})
                    assert 400 <= answer.status_code < 500, (method, path)
                for name in route.query_names:
                    path = route.path.replace("{", "").replace("}", "")
                    answer = await client.request(method, path, params={name: "a\0b"})
                    assert 400 <= answer.status_code < 500, (method, path, name)
        hello = await client.post("/internal/workers/register", json={"capabilities": []})
        worker = hello.json()["worker_id"]
        await world.submit("work")
        got = await client.post(f"/internal/workers/{worker}/poll", json={"available_capacity": 1})
        (task,) = got.json()["tasks"]
        error = {"message": "a\0b", "code": "a\0b", "retriable": False}
        report = {"task_id": task["task_id"], "lease": task["lease"], "status": "failed"}
        path = f"/internal/workers/{worker}/result"
        ended = await client.post(path, json={**report, "error": error})
        assert ended.status_code < 500


# --- said twice ----------------------------------------------------------------------------------
async def test_a_key_in_the_header_and_another_in_the_body_are_refused(
    world: World, served: Gateway
) -> None:
    """S6: what stands there twice must be the same."""
    async with served.client() as client:

        async def sent(header: str | None, body: str | None) -> httpx2.Response:
            headers = {"Idempotency-Key": header} if header else {}
            task = {"task_type": "work", "idempotency_key": body}
            return await client.post("/api/v1/tasks", json=task, headers=headers)

        refused = await sent("one", "two")
        assert (refused.status_code, refused.json()["code"]) == (422, "id_mismatch")
        assert (await client.get("/api/v1/jobs")).json()["jobs"] == []
        first = await sent("one", "one")
        assert first.status_code == 202
        for again in (await sent("one", None), await sent(None, "one")):
            assert (again.status_code, again.json()["task_id"]) == (200, first.json()["task_id"])


# --- filters -------------------------------------------------------------------------------------
async def test_a_query_parameter_that_nobody_reads_is_refused(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        wrong = await client.get("/api/v1/jobs", params={"stauts": "queued"})
        assert (wrong.status_code, wrong.json()["field"]) == (422, "stauts")
        assert 'did you mean "status"?' in wrong.json()["detail"]
        assert (
            "cursor, feature_name, limit, model, region, service, status, tag, tier, user_id"
            in wrong.json()["detail"]
        )
        routes = [each for each in served.app.api.routes if isinstance(each, GuardedRoute)]
        for route in routes:
            path = route.path.replace("{", "").replace("}", "")
            for method in route.methods or ():
                if route.access is not None:
                    answer = await client.request(method, path, params={"nobody": "1"})
                    assert answer.status_code == 422, (method, path)
                    assert "unknown query parameter" in answer.json()["detail"]
        assert (await client.get("/livez", params={"probe": "1"})).status_code == 200
        url = served.url.replace("http", "ws")
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{url}/ws/some-job?aftr=3"):
                pass
        assert refused.value.response.status_code == 422


SPELLINGS = {
    "queued": ("queued", "PENDING", "pending", "Queued"),
    "running": ("running", "RUNNING", "processing", "executing"),
    "completed": ("completed", "COMPLETED", "SUCCESS"),
    "failed": ("failed", "FAILED"),
    "cancelled": ("cancelled", "CANCELLED", "canceled"),
    "dead": ("dead", "dead_letter", "DEAD_LETTER"),
}


async def test_every_spelling_of_a_status_filters(world: World, served: Gateway) -> None:
    async with served.client() as client:
        for _ in range(2):
            await world.submit("work")
        await world.engine.complete(await world.claim_one())
        for status, words in SPELLINGS.items():
            for word in words:
                found = await client.get("/api/v1/jobs", params={"status": word})
                shown = [each["status"] for each in found.json()["jobs"]]
                assert shown == [status] * (status in ("queued", "completed")), word
        several = await client.get("/api/v1/jobs?status=PENDING,success")
        assert len(several.json()["jobs"]) == 2
        for word in ("", "quued", "PENDING,nothing"):
            wrong = await client.get("/api/v1/jobs", params={"status": word})
            assert (wrong.status_code, wrong.json()["field"]) == (422, "status")
            assert "queued, running, completed" in wrong.json()["detail"]


# --- answers -------------------------------------------------------------------------------------
async def test_every_column_of_the_executions_has_a_name_of_its_own(
    world: World, served: Gateway
) -> None:
    matrix = {"region": ["EU", "US"], "model": ["small"], "status": ["x"], "cell.status": ["y"]}
    async with served.client() as client:
        made = await client.post(
            "/api/v1/jobs", json={"service": "ask", "input_data": {}, "matrix": matrix}
        )
        lease = await world.claim_one(Worker("w", region="EU"))
        await world.engine.complete(lease, {"ok": True})
        path = f"/api/v1/jobs/{made.json()['job_id']}/executions"
        text = (await client.get(path, headers={"Accept": "text/csv"})).text
        header = text.splitlines()[0].split(",")
        assert len(header) == len({*header})
        rows = list(csv.DictReader(io.StringIO(text)))
        assert sorted((row["cell.region"], row["region"]) for row in rows) == [
            ("EU", "EU"),
            ("US", ""),
        ]
        assert {row["model"] for row in rows} == {"small"}
        assert {(row["cell.cell.status"], row["cell.status"]) for row in rows} == {("x", "y")}


async def test_the_time_of_the_next_try_is_written_like_every_other(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        job = await world.submit("work")
        await world.engine.fail(await world.claim_one(), Fault.TRANSIENT, "again, please")
        events = (await client.get(f"/api/v1/jobs/{job}/events")).json()
        (retry,) = [each for each in events if each["type"] == "JOB_RETRY"]
        assert retry["data"]["again_at"] == iso((await world.job(job)).ready_at)
        path = f"/api/v1/jobs/{job}/events"
        streamed = ""
        async with client.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data:") and "JOB_RETRY" in line:
                    streamed = line
                    break
        assert retry["data"]["again_at"] in streamed


# --- credits -------------------------------------------------------------------------------------
async def test_a_key_that_acts_for_itself_reads_no_balance(world: World, served: Gateway) -> None:
    """S7: also not whether there is one."""
    gift: dict[str, Any] = {"amount": 7, "operation_key": "gift"}
    async with (
        served.client(await served.key(Role.ADMIN)) as admin,
        served.client(await served.key()) as shop,
        served.client(await served.key(act_as=False)) as alone,
        served.client(await served.key(Role.READ)) as reader,
    ):
        await admin.post("/admin/users/ada/credits", json=gift)
        for user in ("ada", "nobody", quote("a/b", safe="")):
            told = await alone.get(f"/api/v1/users/{user}/credits")
            assert (told.status_code, told.json()["code"]) == (403, "forbidden")
            assert "act_as" in told.json()["detail"]
        for client in (admin, shop, reader):
            assert (await client.get("/api/v1/users/ada/credits")).json()["balance"] == 7
