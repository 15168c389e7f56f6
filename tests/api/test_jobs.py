"""Jobs over HTTP: submitted, looked at, moved."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.clock import seconds
from fairlane.demo.subscriptions import Subscriptions
from fairlane.model.attempt import Fault
from fairlane.model.key import Role
from fairlane.priority import PriorityService
from tests.api.server import Gateway
from tests.world import World

pytestmark = pytest.mark.every_store
NOBODY = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"


async def test_a_job_is_accepted_and_can_be_looked_at(world: World, served: Gateway) -> None:
    async with served.client() as client:
        sent = {"feature_name": "both", "user_id": "ada", "input_data": {"a": 1}, "tags": ["x"]}
        answer = await client.post("/api/v1/jobs", json=sent)
        assert answer.status_code == 202
        job = answer.json()
        assert answer.headers["location"] == f"/api/v1/jobs/{job['job_id']}"
        assert (job["status"], job["priority"], job["position"]) == ("queued", "medium", 1)
        assert set(job["eta"]) == {"p50_seconds", "p90_seconds"}
        seen = (await client.get(answer.headers["location"])).json()
        assert (seen["user_id"], seen["total_steps"], seen["tags"]) == ("ada", 2, ["x"])
        assert (seen["input_data"], seen["context"], seen["position"]) == ({"a": 1}, {}, 1)
        assert seen["queued_at"].endswith("Z")
        lease = await world.claim_one()
        await world.engine.complete(lease, {"out": 2})
        seen = (await client.get(answer.headers["location"])).json()
        assert seen["current_step_index"] == 1
        assert seen["context"]["step_0_first"]["data"] == {"out": 2}


async def test_the_answer_names_the_tier_that_was_asked_for_elsewhere(
    world: World, served: Gateway
) -> None:
    async with (
        Subscriptions({"ada": "high", "linus": "low"}).serving() as source,
        PriorityService(world.engine, source.url),
        served.client() as client,
    ):
        for user, tier in source.tiers.items():
            job = {"service": "work", "user_id": user}
            one = await client.post("/api/v1/jobs", json=job)
            many = await client.post("/api/v1/jobs:batch", json={"jobs": [job]})
            (other,) = [each["job"] for each in many.json()["results"]]
            assert [one.json()["priority"], other["priority"]] == [tier, tier]


async def test_the_same_key_is_answered_with_the_same_job(world: World, served: Gateway) -> None:
    """I12, S23: also when a hundred ask at once; another request under it is refused."""
    async with served.client() as client:
        headers = {"Idempotency-Key": "order-7"}
        send = {"service": "work", "input_data": {"a": 1, "b": 2}}
        answers = await asyncio.gather(
            *(client.post("/api/v1/jobs", json=send, headers=headers) for _ in range(100))
        )
        assert {each.json()["job_id"] for each in answers} == {answers[0].json()["job_id"]}
        codes = sorted(each.status_code for each in answers)
        assert codes == [200] * 99 + [202]
        replayed = [each for each in answers if each.status_code == 200]
        assert {each.headers["idempotent-replayed"] for each in replayed} == {"true"}
        turned = {"input_data": {"b": 2, "a": 1}, "service": "work"}
        again = await client.post("/api/v1/jobs", json=turned, headers=headers)
        assert again.status_code == 200
        other = await client.post("/api/v1/jobs", json={"service": "work"}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_key_is_another_key_on_another_route(served: Gateway) -> None:
    """I12: the same work, asked for in three ways, is three jobs; each way again finds its own."""
    job = {"service": "work"}
    ways: list[tuple[str, dict[str, Any]]] = [
        ("jobs", job),
        ("jobs:batch", {"jobs": [job]}),
        ("tasks", {"task_type": "work"}),
    ]
    async with served.client(headers={"Idempotency-Key": "k"}) as client:

        async def ask(way: str, wish: dict[str, Any]) -> str:
            told = (await client.post(f"/api/v1/{way}", json=wish)).json()
            (told,) = [each["job"] for each in told["results"]] if "results" in told else [told]
            return str(told["task_id"] if way == "tasks" else told["job_id"])

        first = [await ask(*way) for way in ways]
        assert len(set(first)) == 3
        assert [await ask(*way) for way in ways] == first


async def test_an_idempotency_key_of_other_letters_is_refused(served: Gateway) -> None:
    async with served.client() as client:
        for key in ("", "a b", "x" * 256, "ä", "a/b"):
            answer = await client.post(
                "/api/v1/jobs",
                json={"service": "work"},
                headers=[("Idempotency-Key", key.encode())],  # type: ignore[arg-type]
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")


@pytest.mark.parametrize(
    ("way", "sent", "why"),
    [
        ("jobs", {"service": "work", "prioriti": "high"}, 'did you mean "priority"?'),
        (
            "jobs:batch",
            {"jobs": [{"srvice": "work"}]},
            "jobs.0.srvice: no such field; did",
        ),
        ("tasks", {"task_type": "work", "zzz": 1}, "zzz: no such field"),
        ("tasks", {}, "task_type: is needed"),
        ("jobs", [], "a JSON object is needed"),
    ],
)
async def test_a_mistake_is_told_in_plain_words(
    served: Gateway, way: str, sent: Any, why: str
) -> None:
    async with served.client() as client:
        answer = await client.post(f"/api/v1/{way}", json=sent)
        assert (answer.status_code, why in answer.json()["detail"]) == (422, True), answer.text


async def test_each_job_of_a_batch_has_its_own_outcome(served: Gateway) -> None:
    async with served.client() as client:
        jobs = [
            {"service": "work"},
            {"service": "none"},
            {"service": "work", "matrix": {"n": ["1"]}},
        ]
        answer = await client.post("/api/v1/jobs:batch", json={"jobs": jobs})
        results = answer.json()["results"]
        assert [each["status"] for each in results] == [202, 422, 202]
        assert results[1]["error"]["code"] == "unknown_name"
        many = [{"service": "work", "input_data": i} for i in range(1001)]
        refused = await client.post("/api/v1/jobs:batch", json={"jobs": many})
        assert refused.status_code == 422
        headers = {"Idempotency-Key": "b"}
        first = await client.post("/api/v1/jobs:batch", json={"jobs": many[:5]}, headers=headers)
        again = await client.post("/api/v1/jobs:batch", json={"jobs": many[:5]}, headers=headers)
        ids = [[each["job"]["job_id"] for each in one.json()["results"]] for one in (first, again)]
        assert ids[0] == ids[1]
        assert {each["status"] for each in again.json()["results"]} == {200}


async def test_a_job_is_cancelled_once_and_for_good(world: World, served: Gateway) -> None:
    async with served.client() as client:
        job = await submitted(served, service="work")
        assert (await client.delete(f"/api/v1/jobs/{job}")).json()["status"] == "cancelled"
        again = await client.delete(f"/api/v1/jobs/{job}")
        assert (again.status_code, again.json()["state"]) == (409, "cancelled")
        assert await world.claim() == []


async def test_a_move_sent_again_with_its_key_is_no_second_move(served: Gateway) -> None:
    """I6: the answer was lost, not the cancel."""
    async with served.client() as client:
        job = await submitted(served, service="work")
        headers = {"Idempotency-Key": "c"}
        codes = [
            (await client.delete(f"/api/v1/jobs/{job}", headers=headers)).status_code
            for _ in range(2)
        ]
        assert codes == [200, 200]


async def test_a_job_that_waited_too_long_can_be_resumed(world: World, served: Gateway) -> None:
    async with served.client() as client:
        job = await submitted(served, service="work", max_wait_seconds=10)
        await world.pass_time(11)
        seen = (await client.get(f"/api/v1/jobs/{job}")).json()
        assert (seen["status"], seen["error"]["resumable"]) == ("failed", True)
        answer = await client.post(f"/api/v1/jobs/{job}/resume")
        assert (answer.status_code, answer.json()["status"]) == (202, "queued")
        assert (await client.post(f"/api/v1/jobs/{job}/resume")).status_code == 409


async def test_a_dead_job_is_replayed_by_an_administrator(world: World, served: Gateway) -> None:
    dead = await buried(world, served)
    admin, client = await served.key(Role.ADMIN), await served.key(Role.CLIENT)
    async with served.client(client, headers={}) as caller:
        assert (await caller.post(f"/api/v1/jobs/{dead}/replay")).status_code == 403
    async with served.client(admin) as caller:
        assert (await caller.post(f"/api/v1/jobs/{dead}/replay")).status_code == 404  # not its own


async def test_a_waiting_job_says_why_and_what_would_help(world: World, served: Gateway) -> None:
    async with served.client() as client:
        first = await submitted(served, service="scarce", user_id="ada")
        await world.claim_one()
        job = await submitted(served, service="scarce", user_id="ada", priority="low")
        told = (await client.get(f"/api/v1/jobs/{job}/explain")).json()
        assert {"busy", "promotion"} <= {each["code"] for each in told["reasons"]}
        assert {"busy", "skip"} <= {each["code"] for each in told["changes"]}
        assert told["next_promotion_at"] is not None
        running = (await client.get(f"/api/v1/jobs/{first}/explain")).json()
        assert (running["status"], running["reasons"]) == ("running", [])


async def test_a_delayed_job_starts_at_its_time(world: World, served: Gateway) -> None:
    async with served.client() as client:
        answer = await client.post(
            "/api/v1/jobs", json={"service": "work", "run_at": "2023-11-14T22:14:20Z"}
        )
        assert (answer.status_code, answer.json()["position"]) == (202, None)
        assert await world.claim() == []
        world.clock.advance(seconds(61))
        assert len(await world.claim()) == 1
        bad = await client.post("/api/v1/jobs", json={"service": "work", "run_at": "tomorrow"})
        assert bad.status_code == 422


# --- lists ---------------------------------------------------------------------------------------
async def test_jobs_are_listed_by_what_they_are(world: World, served: Gateway) -> None:
    async with served.client() as client:
        mine = await submitted(served, service="work", user_id="ada", tags=["red", "blue"])
        other = await submitted(served, service="first", user_id="bob", tags=["red"])

        async def found(query: str) -> set[str]:
            answer = await client.get(f"/api/v1/jobs?{query}")
            assert answer.status_code == 200, answer.text
            return {each["job_id"] for each in answer.json()["jobs"]}

        assert await found("") == {mine, other}
        assert await found("user_id=ada") == {mine}
        assert await found("tag=red&feature_name=first") == {other}
        assert await found("status=PENDING") == {mine, other}
        assert await found("status=processing,failed") == set()
        await client.delete(f"/api/v1/jobs/{mine}")
        assert await found("status=cancelled&status=dead_letter") == {mine}
        assert (await client.get("/api/v1/jobs?status=lost")).status_code == 422
        assert (await client.get("/api/v1/jobs?limit=201")).status_code == 422


async def test_every_job_that_stays_is_listed_exactly_once(world: World, served: Gateway) -> None:
    """I29: while eight writers come and go."""
    async with served.client() as client:
        batch = [{"service": "work", "input_data": i} for i in range(60)]
        answer = await client.post("/api/v1/jobs:batch", json={"jobs": batch})
        staying = [each["job"]["job_id"] for each in answer.json()["results"]]
        writing = True

        async def writer() -> None:
            while writing:
                job = await submitted(served, service="work")
                await client.delete(f"/api/v1/jobs/{job}")

        writers = [asyncio.create_task(writer()) for _ in range(8)]
        seen: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "7", **({"cursor": cursor} if cursor else {})}
            page = (await client.get("/api/v1/jobs", params=query)).json()
            seen += [each["job_id"] for each in page["jobs"]]
            cursor = page["next"]
            if cursor is None:
                break
        writing = False
        await asyncio.gather(*writers)
        assert sorted(job for job in seen if job in set(staying)) == sorted(staying)
        assert len(seen) == len(set(seen))


async def test_a_cursor_that_was_touched_is_refused(served: Gateway) -> None:
    """S24"""
    async with served.client() as client:
        for _ in range(3):
            await submitted(served, service="work")
        cursor = (await client.get("/api/v1/jobs?limit=1")).json()["next"]
        assert (await client.get(f"/api/v1/jobs?limit=1&cursor={cursor}")).status_code == 200
        last = "A" if cursor[-1] != "A" else "B"
        for wrong in (cursor[:-1] + last, cursor[1:], "x", "%00", "'; --", cursor + "A"):
            answer = await client.get(f"/api/v1/jobs?cursor={wrong}")
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), wrong
        other = await client.get(f"/api/v1/jobs?tag=x&cursor={cursor}")
        assert other.status_code == 400


# --- executions ----------------------------------------------------------------------------------
async def test_a_fan_out_shows_every_execution_and_retries_one(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        job = await submitted(served, service="scarce", matrix={"question": ["=1", "b"]})
        for fails in (False, True):
            lease = await world.claim_one()
            if fails:
                await world.engine.fail(lease, Fault.INVALID_INPUT, "no")
            else:
                await world.engine.complete(lease, {"answer": 42})
        found = (await client.get(f"/api/v1/jobs/{job}/executions")).json()["executions"]
        assert {each["status"] for each in found} == {"completed", "failed"}
        good = next(each for each in found if each["status"] == "completed")
        bad = next(each for each in found if each["status"] == "failed")
        assert good["result"] == {"answer": 42}
        one = (await client.get(f"/api/v1/executions/{good['execution_id']}")).json()
        assert one == good
        retried = await client.post(f"/api/v1/executions/{bad['execution_id']}/retry-question")
        assert (retried.status_code, retried.json()["status"]) == (202, "queued")
        assert (await client.get(f"/api/v1/executions/{job}")).status_code == 404
        table = await client.get(f"/api/v1/jobs/{job}/executions", headers={"Accept": "text/csv"})
        assert table.headers["content-type"].startswith("text/csv")
        assert "question" in table.text.splitlines()[0]
        assert ",'=1," in table.text


# --- credits -------------------------------------------------------------------------------------
async def test_the_front_is_paid_for_once(world: World, served: Gateway) -> None:
    async with served.client() as client:
        job = await submitted(served, service="work", user_id="ada", duration=20)
        poor = await client.post(f"/api/v1/jobs/{job}/skip")
        assert (poor.status_code, poor.json()["price"]) == (402, 3)
        gift = {"amount": 10, "operation_key": "gift", "note": "welcome"}
        for _ in range(2):
            paid = await client.post("/admin/users/ada/credits", json=gift)
            assert paid.json()["balance"] == 10
        quote = (await client.get(f"/api/v1/jobs/{job}/skip")).json()
        assert (quote["price"], quote["currency"], quote["balance"]) == (3, "aura", 10)
        assert set(quote["seconds_saved"]) == {"p50", "p90"}
        dear = await client.post(f"/api/v1/jobs/{job}/skip", json={"max_price": 2})
        assert dear.status_code == 422
        assert (await client.post(f"/api/v1/jobs/{job}/skip")).json()["balance"] == 7
        await world.claim_one()
        assert (await client.get(f"/api/v1/jobs/{job}/skip")).status_code == 409
        assert (await client.get("/api/v1/users/ada/credits")).json()["balance"] == 7
        await world.healthy()


async def submitted(served: Gateway, **sent: object) -> str:
    async with served.client() as client:
        answer = await client.post("/api/v1/jobs", json=sent)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])


async def buried(world: World, served: Gateway) -> str:
    job = await submitted(served, service="scarce")
    await world.engine.fail(await world.claim_one(), Fault.TRANSIENT)
    return job
