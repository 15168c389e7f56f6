"""What a caller sees of the generation queue: its own jobs in detail, others without a name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fairlane.engine.submit import Caller
from fairlane.index.index import EXACT_POSITIONS
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.key import Role
from fairlane.model.service import Executor, Fairness, Service
from fairlane.model.worker import Worker
from tests.api.generation import GENERATION_QUEUE, TIERS, generated
from tests.api.server import TENANT, Gateway, gateway
from tests.core import core_of
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


async def status(client: httpx2.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get("/queue-status", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def queue(client: httpx2.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get("/api/queue", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


# --- own jobs ------------------------------------------------------------------------------------
async def test_a_caller_sees_its_own_jobs_and_how_long_the_queue_is(
    world: World, served: Gateway
) -> None:
    async with (
        served.client(await served.key()) as shop,
        served.client(await served.key(tenant="rival")) as rival,
    ):
        first = await generated(shop, user_id="ada")
        await world.claim_one()
        theirs = await generated(rival, user_id="eve")
        second = await generated(shop, user_id="bob")
        third = await generated(shop, user_id="ada")
        told = await status(shop)
        assert (told["queue_length"], told["current_job"], told["next"]) == (3, first, None)
        assert [(row["id"], row["status"], row["position"]) for row in told["jobs"]] == [
            (first, "processing", 0),
            (second, "queued", 2),
            (third, "queued", 3),
        ]
        told = await status(shop, user_id="bob")
        assert (told["queue_length"], told["current_job"]) == (3, None)
        assert [row["id"] for row in told["jobs"]] == [second]
        told = await status(rival)
        assert [row["id"] for row in told["jobs"]] == [theirs]
        assert told["current_job"] is None


@pytest.mark.usefixtures("_stores")
async def test_the_current_job_is_the_one_that_runs_longest(tmp_path: Path) -> None:
    two = Catalog(TIERS, [Service("generate", limit=2)])
    async with (
        World(two, tmp_path / "two.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        jobs = [await generated(client, user_id=user) for user in ("ada", "bob")]
        for job in jobs:
            assert (await world.claim_one()).job == job
            await world.pass_time(1)
        assert (await status(client))["current_job"] == jobs[0]
        assert (await status(client, user_id="bob"))["current_job"] == jobs[1]


async def test_the_current_job_is_one_of_the_listed_jobs(world: World, served: Gateway) -> None:
    """A cell of a fan-out is not listed. A key without `act_as` has no jobs of users."""
    key = await served.key(act_as=False)
    async with served.client(await served.key()) as shop, served.client(key) as alone:
        cells = {"service": "generate", "matrix": {"prompt": ["a", "b"]}}
        assert (await alone.post("/api/v1/jobs", json=cells)).status_code == 202
        cell = await world.claim_one()
        for client in (shop, alone):
            told = await status(client)
            assert (len(told["jobs"]), told["current_job"]) == (1, None)
        (row, *_) = (await queue(shop))["jobs"]
        assert (row["id"], row["status"]) == (cell.job, "processing")
        await world.engine.complete(cell)
        await world.engine.complete(await world.claim_one())
        caller = Caller(TENANT, (await world.job(cell.job)).key)
        await world.submit("generate", caller, user="ada")
        lease = await world.claim_one()
        assert (await status(shop))["current_job"] == lease.job
        told = await status(alone)
        assert (told["jobs"], told["current_job"]) == ([], None)


async def test_a_key_that_acts_for_itself_sees_only_its_own_jobs(
    world: World, served: Gateway
) -> None:
    async with (
        served.client(await served.key()) as shop,
        served.client(await served.key(act_as=False)) as alone,
    ):
        other = await generated(shop, user_id="ada")
        own = await generated(alone)
        assert [row["id"] for row in (await status(alone))["jobs"]] == [own]
        rows = (await queue(alone))["jobs"]
        assert [(row["id"], row["own"]) for row in rows] == [(None, False), (own, True)]
        assert other not in str(rows)
        for path in ("/queue-status", "/api/queue"):
            answer = await alone.get(path, params={"user_id": "ada"})
            assert (answer.status_code, answer.json()["code"]) == (422, "field_not_allowed")


async def test_pages_of_own_jobs_join_without_a_gap(world: World, served: Gateway) -> None:
    """I29: also while others arrive. A job that has ended is not listed any more."""
    async with served.client() as client:
        jobs = [await generated(client, user_id="boss", priority="admin") for _ in range(7)]
        await client.delete(f"/generate/{jobs[3]}")
        del jobs[3]
        found: list[str] = []
        cursor = None
        while True:
            query = {"limit": 2, "user_id": "boss", **({"cursor": cursor} if cursor else {})}
            told = await status(client, **query)
            found += [row["id"] for row in told["jobs"]]
            await world.submit("other", user="boss", tier="admin")
            cursor = told["next"]
            if cursor is None:
                break
        assert sorted(found) == sorted(jobs)
        wrong = await client.get("/queue-status", params={"cursor": "x"})
        assert wrong.status_code in (400, 422)


async def test_a_delayed_job_has_no_position(world: World, served: Gateway) -> None:
    async with served.client() as client:
        await world.submit("generate", run_at=world.clock.now() + 60_000_000)
        (row,) = (await status(client))["jobs"]
        assert (row["status"], row["position"]) == ("queued", None)
        assert (await queue(client))["total"] == 1


# --- the queue of a service ----------------------------------------------------------------------
async def test_the_queue_shows_what_is_processed_and_what_comes_next(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        free = await generated(client, user_id="ada")
        await world.claim_one()
        later = await generated(client, user_id="ada")
        sooner = await generated(client, user_id="bob", priority="creator")
        paid = await generated(client, user_id="cyd")
        await world.engine.add_credits("cyd", 3, "gift")
        await client.post(f"/api/v1/jobs/{paid}/skip")
        told = await queue(client)
        assert (told["service"], told["total"], told["not_shown"]) == ("generate", 4, 0)
        shown = [
            (row["id"], row["status"], row["priority"], row["skipped"], row["position"])
            for row in told["jobs"]
        ]
        assert shown == [
            (free, "processing", "free", False, 0),
            (paid, "queued", "skipped", True, 1),
            (sooner, "queued", "creator", False, 2),
            (later, "queued", "free", False, 3),
        ]
        assert {"model", "duration", "progress", "progress_pct"} <= told["jobs"][0].keys()
        few = await queue(client, limit=2)
        assert [row["id"] for row in few["jobs"]] == [free, paid]
        assert (few["total"], few["not_shown"]) == (4, 2)


async def test_the_order_shown_is_the_order_served(world: World, served: Gateway) -> None:
    async with served.client() as client:
        for n in range(9):
            await generated(client, user_id=f"u{n}", priority=TIERS.names[2 - n // 3])
        shown = [row["id"] for row in (await queue(client))["jobs"]]
        served_order = []
        for _ in shown:
            lease = await world.claim_one()
            served_order.append(lease.job)
            await world.engine.complete(lease)
        assert shown == served_order


async def test_others_are_rows_without_a_name(world: World, served: Gateway) -> None:
    """S7: of another user only model, duration and progress are told, of another tenant only the
    place. No id, no text, no user."""
    shop, rival = await served.key(), await served.key(tenant="rival")
    async with served.client(shop) as ours, served.client(rival) as theirs:
        secret = {"model": "secret-model", "prompt": "secret prompt", "duration": 17}
        foreign = await generated(theirs, user_id="secret user", **secret)
        lease = await world.claim_one()
        await world.engine.progress(lease, 50, "secret text")
        world.clock.advance(1)
        foreign_next = await generated(theirs, user_id="secret user", **secret)
        world.clock.advance(1)
        hidden = await generated(ours, user_id="bob", model="audio", prompt="of bob")
        world.clock.advance(1)
        own = await generated(ours, user_id="ada")
        answer = await ours.get("/api/queue", params={"user_id": "ada"})
        for word in (foreign, foreign_next, hidden, "secret", "bob"):
            assert word not in answer.text, word
        rows = answer.json()["jobs"]
        assert [(row["id"], row["own"], row["position"]) for row in rows] == [
            (None, False, 0),
            (None, False, 1),
            (None, False, 2),
            (own, True, 3),
        ]
        assert [(row["model"], row["duration"], row["progress_pct"]) for row in rows] == [
            (None, None, None),
            (None, None, None),
            ("audio", 30, 0),
            ("music", 30, 0),
        ]
        assert rows[0]["progress"] is None
        assert rows[0]["priority"] == "free"
        (row, *_) = (await queue(theirs))["jobs"]
        assert (row["id"], row["progress"]) == (foreign, "secret text")


async def test_only_services_of_the_caller_have_a_queue_to_look_at(served: Gateway) -> None:
    async with served.client(await served.key(Role.READ)) as client:
        assert (await queue(client, service="other"))["jobs"] == []
        answer = await client.get("/api/queue", params={"service": "nothing"})
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown_name")
    async with served.client(await served.key(Role.WORKER)) as client:
        for path in ("/queue-status", "/api/queue"):
            assert (await client.get(path)).status_code == 403


async def test_while_the_index_is_rebuilt_positions_are_unknown(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        job = await generated(client)
        core = core_of(world.engine)
        await core.index.begin("another life")
        told = await status(client)
        assert [(row["id"], row["position"]) for row in told["jobs"]] == [(job, None)]
        assert (await client.get("/api/queue")).status_code == 200


# --- far back ------------------------------------------------------------------------------------
@pytest.mark.usefixtures("_stores")
async def test_positions_beyond_the_front_are_estimates_behind_it(tmp_path: Path) -> None:
    """The front is looked at once a second. What arrives meanwhile is estimated, too."""
    async with (
        World(Catalog(TIERS, [Service("generate", limit=1)]), tmp_path / "long.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        many = [NewJob("generate", tier="admin", user=f"u{n}") for n in range(EXACT_POSITIONS + 20)]
        jobs = await world.submit_all(many)
        told = await queue(client, limit=100)
        assert [row["id"] for row in told["jobs"]] == jobs[:100]
        assert (told["total"], told["not_shown"]) == (120, 20)
        last, first = jobs[-1], jobs[0]
        (row,) = (await status(client, user_id="u119"))["jobs"]
        assert (row["id"], row["position"]) == (last, 120)
        (row,) = (await status(client, user_id="u0"))["jobs"]
        assert (row["id"], row["position"]) == (first, 1)
        world.clock.advance(1)
        new = await generated(client, user_id="new", priority="free")
        (row,) = (await status(client, user_id="new"))["jobs"]
        assert (row["id"], row["position"] > EXACT_POSITIONS) == (new, True)


async def test_the_front_is_looked_at_once_for_all_who_ask(world: World, served: Gateway) -> None:
    """A thousand browsers cost one simulation of the next claims a second."""
    async with served.client(await served.key()) as client:
        job = await generated(client)
        assert [row["id"] for row in (await queue(client))["jobs"]] == [job]
        lease = await world.claim_one()
        told = (await queue(client))["jobs"]
        assert [(row["id"], row["status"]) for row in told] == [(job, "processing")], "never stale"
        await world.engine.complete(lease)
        newer = await generated(client)
        assert (await queue(client))["jobs"] == [], "a new job is shown within a second"
        world.clock.advance(1_000_000)
        assert [row["id"] for row in (await queue(client))["jobs"]] == [newer]
        assert TENANT not in str(await queue(client))


# --- the scheduler -------------------------------------------------------------------------------
async def scheduler(client: httpx2.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get("/status", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_the_status_says_what_the_scheduler_does(world: World, served: Gateway) -> None:
    worker = await world.engine.register(Worker("gpu"))
    async with served.client() as client:
        told = await scheduler(client)
        assert told["scheduler"] == {
            "last_model_used": None,
            "batch_count": 0,
            "max_batch_size": 3,
            "starvation_timeouts": {"admin": 30, "creator": 45, "free": 120},
        }
        assert (told["service"], told["estimated_wait"], told["models"]) == ("generate", {}, {})
        for user in ("ada", "bob"):
            await generated(client, user_id=user, model="audio")
            lease = await world.claim_one(worker)
            world.clock.advance(20_000_000)
            await world.engine.complete(lease, None, {"load_seconds": 4})
        await generated(client, user_id="cyd", model="music")
        told = await scheduler(client)
        assert (told["scheduler"]["last_model_used"], told["scheduler"]["batch_count"]) == (
            "audio",
            2,
        )
        assert (told["queue_length"], told["running"]) == (1, 0)
        assert told["models"]["audio"] == {
            "load_seconds": 4,
            "service_seconds": 16,
            "loads": 1,
        }
        (row,) = told["workers"]
        assert (row["worker_id"], row["model"], row["batch_count"]) == (worker.id, "audio", 2)


async def test_the_expected_wait_grows_with_the_jobs_ahead(world: World, served: Gateway) -> None:
    """One GPU, 20 seconds a job: a better tier waits for fewer of them."""
    worker = await world.engine.register(Worker("gpu"))
    async with served.client() as client:
        await generated(client, user_id="first")
        lease = await world.claim_one(worker)
        world.clock.advance(20_000_000)
        await world.engine.complete(lease)
        await generated(client, user_id="running")
        await world.claim_one(worker)
        for n in range(4):
            await generated(client, user_id=f"u{n}")
        told = await scheduler(client)
        by_tier = told["estimated_wait_by_tier"]
        assert told["estimated_wait"] == by_tier["free"] == {"music": 100}
        assert by_tier["admin"] == by_tier["creator"] == {"music": 20}
        assert world.engine.catalog.tiers.default == "free"
        await client.put("/admin/services/generate", json={"paused": True})
        assert (await scheduler(client))["estimated_wait"] == {"music": None}


async def test_without_a_live_worker_the_wait_is_unknown(world: World, served: Gateway) -> None:
    async with served.client() as client:
        await generated(client)
        await world.engine.complete(await world.claim_one())
        await world.pass_time(3600)
        told = await scheduler(client)
        assert (told["estimated_wait"], told["workers"]) == ({"music": None}, [])
        answer = await client.get("/status", params={"service": "nothing"})
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown_name")


async def test_a_worker_that_this_process_does_not_know_is_shown_while_it_runs_a_job(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        await generated(client)
        lease = await world.claim_one()
        (row,) = (await scheduler(client))["workers"]
        assert (row["worker_id"], row["model"], row["batch_count"]) == ("w", "music", None)
        await world.engine.complete(lease)
        assert (await scheduler(client))["workers"] == []


async def test_the_status_names_no_model_of_another_tenant(world: World, served: Gateway) -> None:
    """S7: whether it is learnt, loaded, used last or in use. An admin key is told all."""
    worker = await world.engine.register(Worker("gpu"))
    async with (
        served.client(await served.key()) as ours,
        served.client(await served.key(Role.READ)) as reader,
        served.client(await served.key(tenant="rival")) as theirs,
        served.client(await served.key(Role.ADMIN)) as admin,
    ):

        async def seen() -> tuple[object, object, list[str], list[str]]:
            world.clock.advance(1_000_000)
            for client in (ours, reader):
                assert "secret" not in (await client.get("/status")).text
            told = await scheduler(ours)
            loaded = [row["model"] for row in told["workers"]]
            assert list(told["estimated_wait"]) == sorted({*told["models"], *loaded})
            last = told["scheduler"]
            return last["last_model_used"], last["batch_count"], list(told["models"]), loaded

        await generated(ours, user_id="ada", model="audio")
        await world.engine.complete(await world.claim_one(worker))
        assert await seen() == ("audio", 1, ["audio"], ["audio"])
        await generated(theirs, user_id="eve", model="secret model")
        lease = await world.claim_one(worker)
        assert await seen() == (None, 0, ["audio"], [])
        for client in (theirs, admin):
            told = await scheduler(client)
            assert told["scheduler"]["last_model_used"] == "secret model"
            assert [row["model"] for row in told["workers"]] == ["secret model"]
        await world.engine.complete(lease)
        assert await seen() == (None, 0, ["audio"], [])
        assert list((await scheduler(theirs))["models"]) == ["secret model"]
        assert list((await scheduler(admin))["models"]) == ["audio", "secret model"]


@pytest.mark.usefixtures("_stores")
async def test_the_status_names_no_model_in_a_slot_of_another_tenant(tmp_path: Path) -> None:
    """S7: the slots of a called service remember their models."""
    called = Service("generate", executor=Executor.HTTP, limit=2, fairness=Fairness.NONE)
    async with (
        World(Catalog(TIERS, [called]), tmp_path / "called.db") as world,
        gateway(world.engine) as served,
        served.client(await served.key()) as ours,
        served.client(await served.key(tenant="rival")) as theirs,
    ):
        for client, model in ((ours, "audio"), (theirs, "secret model")):
            await generated(client, user_id="ada", model=model)
        for lease in await world.claim(2):
            await world.engine.complete(lease)
        answer = await ours.get("/status")
        assert "secret" not in answer.text
        (row,) = answer.json()["workers"]
        assert (row["slot"], row["model"]) == ("svc:generate/1", "audio")
