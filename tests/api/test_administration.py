"""Administration over HTTP: limits, users, dead letters, the state of the queue."""

from __future__ import annotations

import re

import pytest

from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.key import Role
from fairlane.model.worker import Worker
from tests.api.server import TENANT, Gateway
from tests.world import World

pytestmark = pytest.mark.every_store


async def test_limits_change_while_it_runs(world: World, served: Gateway) -> None:
    async with served.client() as client:
        for _ in range(3):
            await client.post("/api/v1/jobs", json={"service": "scarce"})
        assert len(await world.claim(5)) == 1
        changed = await client.put("/admin/services/scarce", json={"limit": 2, "rate": 600})
        assert (changed.json()["limit"], changed.json()["rate"]) == (2, 600)
        assert len(await world.claim(5)) == 1
        await client.put("/admin/services/scarce", json={"paused": True, "limit": 9})
        assert await world.claim(5) == []
        listed = (await client.get("/admin/services")).json()["services"]
        assert next(each for each in listed if each["name"] == "scarce")["paused"]
        assert (await client.put("/admin/services/none", json={"limit": 2})).status_code == 404
        assert (await client.put("/admin/services/scarce", json={"limit": -1})).status_code == 422
        assert (await client.put("/admin/services/scarce", json={"limits": 1})).status_code == 422
        modal = await client.put("/admin/providers/modal", json={"limit": 3})
        assert modal.json() == {"limit": 3, "rate": 0}
        assert (await client.put("/admin/providers/none", json={})).status_code == 404
        changes = (await client.get("/admin/audit")).json()["changes"]
        assert {each["target"] for each in changes} >= {"services/scarce/limit"}
        assert {each["actor"] for each in changes} == {"default/local"}


async def test_the_tier_of_a_user_is_that_of_the_jobs_after(world: World, served: Gateway) -> None:
    async with served.client() as client:
        job = {"service": "work", "user_id": "ada"}
        assert (await client.post("/api/v1/jobs", json=job)).json()["priority"] == "medium"
        answer = await client.put("/admin/users/ada", json={"priority": "high"})
        assert answer.json() == {"user_id": "ada", "priority": "high"}
        assert (await client.post("/api/v1/jobs", json=job)).json()["priority"] == "high"
        wrong = await client.put("/admin/users/ada", json={"priority": "gold"})
        assert (wrong.status_code, "known: high, low, medium" in wrong.text) == (422, True)
        (change,) = (await client.get("/admin/audit")).json()["changes"]
        assert (change["target"], change["after"]) == ("default/ada", "high")


async def test_dead_letters_are_listed_replayed_and_purged(world: World, served: Gateway) -> None:
    """I23: each is replayed once, whoever asks and how often."""
    async with served.client() as client:
        dead = []
        for i in range(5):
            sent = {"service": "scarce", "tags": ["odd"] if i % 2 else []}
            dead.append((await client.post("/api/v1/jobs", json=sent)).json()["job_id"])
            await world.engine.fail(await world.claim_one(), Fault.TRANSIENT)
        stats = (await client.get("/admin/runtime/stats")).json()
        assert stats == {"main": 0, "retry": 0, "dead": 5}
        page = (await client.get("/admin/queue-dead?limit=2")).json()
        assert (page["total"], [each["job_id"] for each in page["jobs"]]) == (5, dead[:2:-1])
        following = (await client.get(f"/admin/queue-dead?limit=3&cursor={page['next']}")).json()
        assert [each["job_id"] for each in following["jobs"]] == dead[2::-1]
        one = await client.post(f"/admin/queue-dead/{dead[0]}/replay")
        assert (one.status_code, one.json()["status"]) == (202, "queued")
        assert (await client.post(f"/admin/queue-dead/{dead[0]}/replay")).status_code == 409
        odd = {"filter": {"tag": "odd"}}
        purged = await client.post("/admin/queue-dead/purge", json=odd)
        assert purged.json() == {"count": 2, "more": False}
        rest = await client.post("/admin/queue-dead/replay")
        assert rest.json() == {"count": 2, "more": False}
        assert (await client.post("/admin/queue-dead/replay", json={})).json()["count"] == 0
        assert (await client.get(f"/api/v1/jobs/{dead[1]}")).status_code == 404
        assert await world.drain() == 3
        await world.healthy()


async def test_administrators_run_the_installation_and_own_what_is_their_tenants(
    world: World, served: Gateway
) -> None:
    """S7: what belongs to a tenant is counted for it; the line and the audit belong to all."""
    acme, other = await served.key(Role.ADMIN), await served.key(Role.ADMIN, "other")
    async with served.client(acme) as mine, served.client(other) as theirs:
        job = (await mine.post("/api/v1/jobs", json={"service": "scarce"})).json()["job_id"]
        await world.engine.fail(await world.claim_one(), Fault.TRANSIENT)
        await mine.post("/api/v1/jobs", json={"service": "scarce"})
        await mine.put("/admin/users/ada", json={"priority": "high"})
        for admin, total in ((mine, 1), (theirs, 0)):
            dead = (await admin.get("/admin/queue-dead")).json()
            assert (dead["total"], len(dead["jobs"])) == (total, total)
            stats = (await admin.get("/admin/runtime/stats")).json()
            assert stats == {"main": 1, "retry": 0, "dead": 1}
            change = (await admin.get("/admin/audit")).json()["changes"][0]
            assert (change["action"], change["target"]) == ("set tier", f"{TENANT}/ada")
        assert (await theirs.post(f"/admin/queue-dead/{job}/replay")).status_code == 404
        for act in ("replay", "purge"):
            assert (await theirs.post(f"/admin/queue-dead/{act}")).json()["count"] == 0
        await theirs.put("/admin/users/ada", json={"priority": "low"})
        accepted = await mine.post("/api/v1/jobs", json={"service": "work", "user_id": "ada"})
        assert accepted.json()["priority"] == "high", "another tenant's user of that name"


async def test_the_queue_shows_every_service_and_region(world: World, served: Gateway) -> None:
    async with served.client() as client:
        await world.submit_all(
            [NewJob("second", regions=("EU",)), NewJob("second"), NewJob("scarce")]
        )
        await world.claim(1, Worker("eu", frozenset({"second"}), "EU"))
        status = (await client.get("/queue/status")).json()
        assert status["regions"]["EU"] == {
            "waiting": 1,
            "retry": 0,
            "running": 1,
            "limit": 2,
            "health": "healthy",
            "oldest_age_seconds": 0.0,
        }
        assert status["providers"]["modal"] == {"running": 1, "limit": 10}
        assert status["services"]["scarce"]["waiting"] == 1
        assert (await client.get("/queue/status/EU")).json() == status["regions"]["EU"]
        assert (await client.get("/queue/status/MARS")).status_code == 404


async def test_the_queue_shows_what_runs_where_nothing_is_limited(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        await world.submit_all([NewJob("work")] * 3 + [NewJob("scarce")] * 2 + [NewJob("second")])
        assert len(await world.claim(2, Worker("w", frozenset({"work"})))) == 2
        await world.claim(9, Worker("s", frozenset({"scarce"})))
        (lease,) = await world.claim(1, Worker("eu", frozenset({"second"}), "EU"))
        services = (await client.get("/queue/status")).json()["services"]
        running = {name: line["running"] for name, line in services.items()}
        assert running == {"work": 2, "scarce": 1, "first": 0, "second": 1}
        await world.engine.complete(lease)
        services = (await client.get("/queue/status")).json()["services"]
        assert services["second"]["running"] == 0


async def test_the_description_is_there_for_programs_and_people(served: Gateway) -> None:
    """S11: the page runs and loads only what this server has, and no inline script."""
    async with served.client(await served.key(Role.WORKER)) as client:
        described = (await client.get("/openapi.json")).json()
        assert described["security"] == [{"key": []}]
        assert "/api/v1/jobs:batch" in described["paths"]
        for path in described["paths"].values():
            for operation in path.values():
                assert operation["x-access"]
        page = await client.get("/docs")
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert "docs/swagger-ui-bundle.js" in loaded
        for file in loaded:
            answer = await client.get(f"/{file}")
            assert answer.status_code == 200, file
            assert not answer.headers["content-type"].startswith("text/html")
        assert page.text.count("<script") == page.text.count("<script src=")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "unsafe" not in policy
        assert (await client.get("/docs/secrets.toml")).status_code == 404
        assert (await client.get("/docs/..%2Fapp.py")).status_code == 404


async def test_the_examples_of_the_description_work(world: World, served: Gateway) -> None:
    """What somebody copies from the description is accepted as it stands."""
    async with served.client(await served.key(Role.ADMIN)) as client:
        schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
        (job,) = schemas["JobRequestBody"]["examples"]
        accepted = await client.post("/api/v1/jobs", json={**job, "feature_name": "both"})
        assert accepted.status_code == 202
        for path, method, model in (
            ("/admin/services/scarce", "PUT", "ServiceRequest"),
            ("/admin/users/ada", "PUT", "UserRequest"),
            ("/admin/users/ada/credits", "POST", "CreditsRequest"),
            ("/admin/keys", "POST", "KeyRequest"),
        ):
            (example,) = schemas[model]["examples"]
            answer = await client.request(method, path, json=example)
            assert answer.status_code in (200, 201), answer.text
