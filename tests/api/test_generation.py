"""The generation queue over HTTP: submit, look, cancel, in the words of a generation queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fairlane.model.catalog import Catalog
from fairlane.model.key import Role
from fairlane.model.lease import Lease
from fairlane.model.quality_check import QualityCheck
from fairlane.model.service import Service
from tests.api.generation import GENERATION_QUEUE, MUSIC, TIERS, generated
from tests.api.server import Gateway, gateway
from tests.world import World

pytestmark = [pytest.mark.every_store, pytest.mark.timeout(60)]


@pytest.fixture
async def world(tmp_path: Path, _stores: None) -> AsyncIterator[World]:
    async with World(GENERATION_QUEUE, tmp_path / "ledger.db") as opened:
        yield opened


@pytest.fixture
async def served(world: World) -> AsyncIterator[Gateway]:
    async with gateway(world.engine) as opened:
        yield opened


async def seen(client: httpx2.AsyncClient, job: str) -> dict[str, Any]:
    return dict((await client.get(f"/generate/{job}")).json())


# --- submit --------------------------------------------------------------------------------------
async def test_a_generation_is_accepted_and_can_be_looked_at(world: World, served: Gateway) -> None:
    async with served.client() as client:
        answer = await client.post("/generate", json={**MUSIC, "user_id": "ada"})
        assert answer.status_code == 202
        told = answer.json()
        assert (told["status"], told["priority"], told["position"]) == ("queued", "free", 1)
        found = (await client.get(answer.headers["location"])).json()
        assert (found["id"], found["user_id"], found["status"]) == (
            told["job_id"],
            "ada",
            "queued",
        )
        assert (found["model"], found["duration"], found["prompt"]) == (
            "music",
            30,
            "a heron at dawn",
        )
        assert (found["priority"], found["skipped"], found["position"]) == ("free", False, 1)
        assert (found["progress"], found["progress_pct"], found["result"]) == (None, 0, None)


async def test_the_worker_gets_prompt_model_duration_and_parameters(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        await generated(client, parameters={"seed": 7})
        lease = await world.claim_one()
        assert (lease.model, lease.input) == ("music", {**MUSIC, "seed": 7})


async def test_a_key_sent_again_is_answered_with_the_same_generation(
    world: World, served: Gateway
) -> None:
    """I12, with the words of a generation."""
    async with served.client(headers={"Idempotency-Key": "order-7"}) as client:
        first = await generated(client)
        await world.claim_one()
        again = await client.post("/generate", json=MUSIC)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
        assert (again.json()["job_id"], again.json()["status"]) == (first, "processing")
        other = await client.post("/generate", json={**MUSIC, "duration": 29})
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    "wrong",
    [
        {"duration": 0},
        {"duration": -1},
        {"model": ""},
        {"model": None},
        {"prompt": None},
        {"prompt": "nul \0"},
        {"feature_name": "generate"},
        {"parameters": {"duration": 10}},
        {"parameters": [1]},
        {"priority": "king"},
    ],
    ids=repr,
)
async def test_what_is_no_generation_is_refused(served: Gateway, wrong: dict[str, Any]) -> None:
    async with served.client() as client:
        answer = await client.post("/generate", json={**MUSIC, **wrong})
        assert answer.status_code == 422
        assert "error" not in answer.json()


async def test_only_a_key_with_the_right_names_a_user_or_a_tier(served: Gateway) -> None:
    async with served.client(await served.key(act_as=False)) as client:
        for field, value in (("user_id", "ada"), ("priority", "admin")):
            answer = await client.post("/generate", json={**MUSIC, field: value})
            assert (answer.status_code, answer.json()["code"]) == (422, "field_not_allowed")
            assert answer.json()["field"] == field
    async with served.client(await served.key(Role.READ)) as client:
        assert (await client.post("/generate", json=MUSIC)).status_code == 403


# --- refusals ------------------------------------------------------------------------------------
async def test_each_limit_refuses_with_its_code_and_a_sentence(
    world: World, served: Gateway
) -> None:
    async def refused(**more: Any) -> tuple[int, str, str]:
        answer = await client.post("/generate", json={**MUSIC, **more})
        told = answer.json()
        assert ("retry-after" in answer.headers) == (answer.status_code == 429)
        return answer.status_code, told["code"], told["error"]

    async with served.client() as client:
        ada = {"user_id": "ada"}
        found = await refused(**ada, duration=31)
        assert found == (422, "duration_too_long", "Duration exceeds your tier limit")
        jobs = [await generated(client, **ada) for _ in range(2)]
        found = await refused(**ada)
        assert found == (429, "too_many_pending", "Queue limit reached for your tier")
        for job in jobs:
            await client.delete(f"/generate/{job}")
        await generated(client, **ada)
        found = await refused(**ada)
        assert found == (429, "too_many_this_hour", "Hourly limit reached for your tier")
        for n in range(9):
            await generated(client, user_id=f"admin {n}", priority="admin")
        found = await refused(user_id="boss", priority="admin")
        assert found == (429, "queue_full", "Queue is full")
        same = await client.post(
            "/api/v1/jobs",
            json={"service": "generate", "user_id": "boss", "priority": "admin", "duration": 30},
        )
        assert (same.status_code, same.json()["code"]) == (429, "queue_full")
        assert "error" not in same.json(), "the sentences belong to /generate"


# --- states --------------------------------------------------------------------------------------
async def test_a_generation_goes_through_the_states_of_the_document(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        job = await generated(client)
        lease = await world.claim_one()
        found = await seen(client, job)
        assert (found["status"], found["position"]) == ("processing", 0)
        assert (found["progress"], found["progress_pct"]) == (None, 0)
        await reported(world, lease, 45, "")
        found = await seen(client, job)
        assert (found["progress"], found["progress_pct"]) == ("Generating... 45%", 45)
        await reported(world, lease, 60.4, "Mixing")
        found = await seen(client, job)
        assert (found["progress"], found["progress_pct"]) == ("Mixing", 60)
        await world.engine.complete(lease, {"url": "https://cdn.example/heron.wav"})
        found = await seen(client, job)
        assert (found["status"], found["position"]) == ("completed", None)
        assert (found["progress_pct"], found["result"]) == (
            100,
            {"url": "https://cdn.example/heron.wav"},
        )
        assert found["completed_at"] is not None


@pytest.mark.usefixtures("_stores")
async def test_a_generation_has_no_result_while_its_check_may_reject_it(tmp_path: Path) -> None:
    """Also if its owner cancels it there."""
    check = QualityCheck("judge")
    services = [Service("generate", quality_check=check), Service("judge")]
    async with (
        World(Catalog(TIERS, services), tmp_path / "ledger.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        job, other = await generated(client), await generated(client)
        for _ in range(2):
            await world.engine.complete(await world.claim_one(), "song")
        assert (await seen(client, job))["result"] is None
        await client.delete(f"/generate/{job}")
        found = await seen(client, job)
        assert (found["status"], found["result"]) == ("cancelled", None)
        await world.engine.complete(await world.claim_one(), output=True)
        assert (await seen(client, other))["result"] == "song"


async def reported(world: World, lease: Lease, percent: float, text: str) -> None:
    await world.engine.progress(lease, percent, text)


async def test_a_dead_generation_has_failed(world: World, served: Gateway) -> None:
    async with served.client() as client:
        job = str((await client.post("/api/v1/jobs", json={"service": "other"})).json()["job_id"])
        await world.engine.fail(await world.claim_one(), message="no")
        found = await seen(client, job)
        assert (found["status"], found["error"]["message"]) == ("failed", "no")
        late = await client.delete(f"/generate/{job}")
        assert (late.status_code, late.json()["state"]) == (409, "failed")


async def test_a_generation_is_cancelled_while_it_waits_and_while_it_is_processed(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        first, second = await generated(client), await generated(client)
        lease = await world.claim_one()
        for job in (first, second):
            answer = await client.delete(f"/generate/{job}")
            assert answer.json() == {"id": job, "status": "cancelled"}
            assert (await seen(client, job))["status"] == "cancelled"
        assert lease.job == first
        assert (await client.delete(f"/generate/{first}")).status_code == 409


async def test_a_paid_skip_is_called_skipped(world: World, served: Gateway) -> None:
    async with served.client() as client:
        await generated(client, user_id="bob")
        job = await generated(client, user_id="ada")
        await world.engine.add_credits("ada", 3, "gift")
        assert (await client.post(f"/api/v1/jobs/{job}/skip")).json()["price"] == 3
        found = await seen(client, job)
        assert (found["priority"], found["tier"], found["skipped"]) == ("skipped", "free", True)
        assert found["position"] == 1
