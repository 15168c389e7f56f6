"""The place of a job by a signed link, the timeline of a job, and filters of the list."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from fairlane.clock import seconds
from fairlane.model.attempt import Fault
from fairlane.model.key import Role
from fairlane.model.worker import Worker
from tests.api.server import Gateway
from tests.world import World

EU = Worker("w", region="EU")


async def link(served: Gateway, key: str, job: str, **more: int) -> str:
    async with served.client(key) as client:
        answer = await client.post(f"/api/v1/jobs/{job}/link", json=more)
        assert answer.status_code == 201, answer.text
        url: str = answer.json()["url"]
    assert url.startswith("/p/")
    return f"/api/v1/place/{url.removeprefix('/p/')}"


async def seen(served: Gateway, path: str) -> dict[str, Any]:
    """What the end user sees, who has no key."""
    async with served.client() as client:
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


async def submitted(served: Gateway, key: str, **more: str) -> str:
    body = {"service": "scarce", "input_data": {"x": 1}, **more}
    async with served.client(key) as client:
        job: str = (await client.post("/api/v1/jobs", json=body)).json()["job_id"]
        return job


@pytest.mark.every_store
async def test_a_link_shows_the_place_of_one_job_and_nothing_of_others(
    world: World, served: Gateway
) -> None:
    """S7: no id and no user of another job."""
    key = await served.key(Role.CLIENT)
    await world.engine.register(Worker("w"))
    first = await submitted(served, key, user_id="ada")
    job = await submitted(served, key, user_id="bob")
    path = await link(served, key, job)
    found = await seen(served, path)
    assert (found["status"], found["position"], found["ahead"]["jobs"]) == ("queued", 2, 1)
    assert found["message"] == "1 job is before it"
    assert found["eta"] is not None
    assert first not in json.dumps(found)
    assert "ada" not in json.dumps(found)
    await world.engine.complete(await world.claim_one())
    lease = await world.claim_one()
    await world.engine.progress(lease, 40, "drawing")
    found = await seen(served, path)
    assert (found["status"], found["progress"]["percent"]) == ("running", 40)
    await world.engine.complete(lease, {"url": "https://cdn.example/1.png"})
    found = await seen(served, path)
    assert (found["status"], found["message"]) == ("completed", "has completed")
    assert found["result"] == {"url": "https://cdn.example/1.png"}


async def test_a_link_ends_with_its_time_and_with_its_key(world: World, served: Gateway) -> None:
    key = await served.key(Role.CLIENT)
    job = await submitted(served, key)
    short, long = await link(served, key, job, expires_seconds=60), await link(served, key, job)
    async with served.client() as client:
        assert (await client.get(short)).status_code == 200
        world.clock.advance(seconds(60))
        assert (await client.get(short)).status_code == 404
        assert (await client.get(long)).status_code == 200
        name = key.partition(".")[0]
        assert await served.engine.api_keys.revoke(name, served.engine.clock.now(), "test")
        served.app.app_context.key_cache.forget(name)
        assert (await client.get(long)).status_code == 404


@pytest.mark.parametrize("token", ["x", "AAAA", "WyJhIl0", "%00", "a" * 999])
async def test_a_link_that_was_not_made_here_shows_nothing(served: Gateway, token: str) -> None:
    await served.key()
    async with served.client() as client:
        for path in (f"/api/v1/place/{token}", f"/api/v1/place/{token}/events"):
            assert (await client.get(path)).status_code in (404, 422)


async def test_a_link_is_made_only_for_an_own_job(served: Gateway) -> None:
    """S7."""
    job = await submitted(served, await served.key(Role.CLIENT))
    async with served.client(await served.key(Role.CLIENT, "other")) as client:
        assert (await client.post(f"/api/v1/jobs/{job}/link", json={})).status_code == 404


@pytest.mark.every_store
async def test_the_place_can_be_followed_until_the_end(world: World, served: Gateway) -> None:
    key = await served.key(Role.CLIENT)
    job = await submitted(served, key)
    path = await link(served, key, job)
    places = []
    async with served.client() as client, client.stream("GET", f"{path}/events") as stream:
        async for line in stream.aiter_lines():
            if not line.startswith("data: "):
                continue
            places.append(json.loads(line.removeprefix("data: ")))
            if len(places) == 1:
                await world.engine.complete(await world.claim_one(), {"done": True})
    assert places[0]["status"] == "queued"
    assert places[-1]["status"] == "completed"
    assert places[-1]["result"] == {"done": True}
    assert all(one != two for one, two in pairwise(places))


# --- the timeline --------------------------------------------------------------------------------
@pytest.mark.every_store
async def test_a_timeline_splits_waiting_by_its_cause(world: World, served: Gateway) -> None:
    job = await world.submit("first", user="ada")
    world.clock.advance(seconds(3))
    lease = await world.claim_one()
    world.clock.advance(seconds(2))
    await world.engine.fail(lease, Fault.TRANSIENT, "a hiccup")
    again_at = (await world.job(job)).ready_at
    pause = (again_at - world.clock.now()) / 1_000_000
    await world.pass_time(pause + 4)
    lease = await world.claim_one()
    world.clock.advance(seconds(5))
    async with served.client() as client:
        found = (await client.get(f"/api/v1/jobs/{job}/timeline")).json()
    kinds = [each["kind"] for each in found["spans"]]
    assert kinds == ["waiting", "running", "backoff", "waiting", "running"]
    assert [each["attempt"] for each in found["spans"]] == [1, 1, 2, 2, 2]
    assert found["spans"][1]["outcome"] == "transient"
    assert found["spans"][1]["note"] == "a hiccup"
    assert found["spans"][-1]["to"] is None
    for one, two in pairwise(found["spans"]):
        assert one["to"] == two["from"], "without a gap"
    assert found["totals"] == {
        "running": pytest.approx(7),
        "waiting": pytest.approx(7),
        "backoff": pytest.approx(pause, abs=0.01),
        "unavailable": 0,
    }
    await world.engine.complete(lease)
    async with served.client() as client:
        found = (await client.get(f"/api/v1/jobs/{job}/timeline")).json()
    assert [each["kind"] for each in found["spans"]] == kinds
    assert found["spans"][-1]["outcome"] == "completed"


@pytest.mark.every_store
async def test_a_timeline_of_a_waiting_job_shows_when_it_will_probably_start(
    world: World, served: Gateway
) -> None:
    await world.engine.register(Worker("w"))
    job = await world.submit("scarce", user="ada")
    world.clock.advance(seconds(3))
    async with served.client() as client:
        found = (await client.get(f"/api/v1/jobs/{job}/timeline")).json()
    assert [(each["kind"], each["to"] is None) for each in found["spans"]] == [
        ("waiting", True),
        ("expected", False),
    ]
    assert found["totals"]["waiting"] == pytest.approx(3)


# --- filters -------------------------------------------------------------------------------------
@pytest.mark.every_store
async def test_the_list_can_be_filtered_by_tier_service_region_and_model(
    world: World, served: Gateway
) -> None:
    low = await world.submit("scarce", user="ada", tier="low", model="sdxl")
    high = await world.submit("work", user="bob", tier="high")
    both = await world.submit("both", user="cyd")
    second = await world.submit("second", user="dan", regions=("EU",))
    (lease,) = [each for each in await world.claim(9, EU) if each.job == second]
    async with served.client() as client:

        async def found(**query: str) -> set[str]:
            jobs = (await client.get("/api/v1/jobs", params=query)).json()["jobs"]
            return {each["job_id"] for each in jobs}

        assert await found(tier="low") == {low}
        assert await found(tier="high") == {high}
        assert await found(service="scarce") == {low}
        assert await found(service="first") == {both}
        assert await found(service="firs") == set()
        assert await found(model="sdxl") == {low}
        assert second in await found(region="EU")
        assert await found(region="US") == set()
        assert await found(tier="low", service="work") == set()
        assert await found() == {low, high, both, second}
    assert lease.region == "EU"
