"""Jobs over HTTP: submitted, looked at, moved."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.api.schemas.timestamps import iso
from fairlane.clock import seconds
from fairlane.demo.priority_service import DemoPriorityService
from fairlane.model.attempt import Fault
from fairlane.model.key import Role
from fairlane.model.worker import Worker
from fairlane.priority import PriorityService
from tests.api.server import Gateway
from tests.world import World

pytestmark = pytest.mark.every_store
NOBODY = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"


async def test_a_job_is_accepted_and_can_be_looked_at(world: World, served: Gateway) -> None:
    await world.engine.register(Worker("w"))
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
        DemoPriorityService({"ada": "high", "linus": "low"}).serving() as source,
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
        ("jobs:batch", {"jobz": []}, "jobs: is needed"),
        ("jobs:batch", {"jobs": {}}, "jobs: Input should be a valid list"),
        ("jobs:batch", {"jobs": []}, "jobs: List should have at least 1 item"),
        ("jobs:batch", [], "a JSON object is needed"),
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


async def test_a_malformed_job_refuses_only_itself(world: World, served: Gateway) -> None:
    """Each is answered as it would have been alone; the others keep their numbers and keys."""
    good = {"feature_name": "work"}
    bad: list[Any] = [{"feature_name": "a b"}, {"srvice": "work"}, 7, {**good, "duration": "x"}]
    headers = {"Idempotency-Key": "b"}
    async with served.client(headers=headers) as client:
        batch = {"jobs": [good, *bad, good]}
        first, again = [await client.post("/api/v1/jobs:batch", json=batch) for _ in range(2)]
        assert (first.status_code, again.status_code) == (200, 200)
        results = first.json()["results"]
        assert [each["status"] for each in results] == [202, 422, 422, 422, 422, 202]
        assert [each["status"] for each in again.json()["results"]] == [200, *[422] * 4, 200]
        for job, result in zip(bad, results[1:], strict=False):
            alone = (await client.post("/api/v1/jobs", json=job)).json()
            assert result["error"] == {name: alone[name] for name in ("code", "detail", "errors")}
        mended = {"jobs": [good, *[good] * 4, good]}
        told = (await client.post("/api/v1/jobs:batch", json=mended)).json()["results"]
        assert [each["status"] for each in told] == [200, *[202] * 4, 200]


async def test_an_idempotency_key_is_sent_once(served: Gateway) -> None:
    """Whoever passes it on may know it by the other one."""
    async with served.client() as client:
        job = await submitted(served, service="work")
        for method, path, sent in (
            ("POST", "/api/v1/jobs", {"service": "work"}),
            ("POST", "/api/v1/jobs:batch", {"jobs": [{"service": "work"}]}),
            ("POST", "/api/v1/tasks", {"task_type": "work"}),
            ("DELETE", f"/api/v1/jobs/{job}", None),
        ):
            headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
            answer = await client.request(method, path, json=sent, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "repeated_header")
        assert len((await client.get("/api/v1/jobs")).json()["jobs"]) == 1


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
        changes = {each["code"]: each["text"] for each in told["changes"]}
        assert changes["busy"] == "a higher limit: PUT /admin/services/scarce"
        assert changes["skip"].endswith(f"POST /api/v1/jobs/{job}/skip")
        assert told["next_promotion_at"] is not None
        running = (await client.get(f"/api/v1/jobs/{first}/explain")).json()
        assert (running["status"], running["reasons"]) == ("running", [])


async def test_a_dead_job_is_told_that_it_can_be_replayed(world: World, served: Gateway) -> None:
    job = await buried(world, served)
    async with served.client() as client:
        (change,) = (await client.get(f"/api/v1/jobs/{job}/explain")).json()["changes"]
        assert change["code"] == "replay"
        method, path = change["text"].split()[-2:]
        assert (await client.request(method, path)).status_code == 202


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


async def test_all_failed_executions_are_retried_and_counted(world: World, served: Gateway) -> None:
    """I20: the counts by state, the filter by status, and a key that makes the retry safe."""
    async with served.client() as client:
        job = await submitted(
            served, service="scarce", matrix={"q": ["1", "2", "3"]}, on_cell_failure="continue"
        )
        for fault in (Fault.INVALID_INPUT, Fault.TRANSIENT):
            await world.engine.fail(await world.claim_one(), fault, "no")
        shown = (await client.get(f"/api/v1/jobs/{job}")).json()
        assert shown["executions"] == {
            "total": 3,
            "queued": 1,
            "running": 0,
            "completed": 0,
            "failed": 1,
            "dead": 1,
            "cancelled": 0,
        }
        assert shown["progress"] == {"percent": 66.7, "text": "2 of 3 executions have ended"}
        listed = await client.get(f"/api/v1/jobs/{job}/executions?status=failed,dead_letter")
        assert len(listed.json()["executions"]) == 2
        path, key = f"/api/v1/jobs/{job}/retry-failed", {"Idempotency-Key": "again"}
        first = await client.post(path, headers=key)
        assert (first.status_code, first.json()) == (
            202,
            {"job_id": job, "status": "running", "count": 2},
        )
        assert (await client.post(path, headers=key)).json()["count"] == 0
        assert (await client.post(path)).status_code == 409
        alone = await submitted(served, service="work")
        assert (await client.post(f"/api/v1/jobs/{alone}/retry-failed")).status_code == 422
        assert (await client.get(f"/api/v1/jobs/{alone}")).json()["executions"] is None


# --- credits -------------------------------------------------------------------------------------
async def test_the_front_is_paid_for_once(world: World, served: Gateway) -> None:
    await world.engine.register(Worker("w"))
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
        assert (dear.status_code, dear.json()["price"]) == (422, 3)
        assert (await client.post(f"/api/v1/jobs/{job}/skip")).json()["balance"] == 7
        quote = (await client.get(f"/api/v1/jobs/{job}/skip")).json()
        assert (quote["price"], quote["balance"], quote["seconds_saved"]) == (0, 7, None)
        for wish in ({}, {"max_price": 0}):
            again = await client.post(f"/api/v1/jobs/{job}/skip", json=wish)
            assert again.json() == {"job_id": job, "price": 0, "balance": 7}
        await world.claim_one()
        assert (await client.get(f"/api/v1/jobs/{job}/skip")).status_code == 409
        assert (await client.get("/api/v1/users/ada/credits")).json()["balance"] == 7
        await world.healthy()


async def test_a_fan_out_is_offered_no_front(world: World, served: Gateway) -> None:
    await world.engine.register(Worker("w"))
    matrix = {"question": ["a", "b"]}
    async with served.client() as client:
        sent = {"service": "work", "user_id": "ada", "input_data": {}, "matrix": matrix}
        many = await submitted(served, **sent)
        gift = {"amount": 10, "operation_key": "gift"}
        await client.post("/admin/users/ada/credits", json=gift)
        quote = await client.get(f"/api/v1/jobs/{many}/skip")
        skip = await client.post(f"/api/v1/jobs/{many}/skip")
        assert (quote.status_code, quote.json()["detail"]) == (422, skip.json()["detail"])
        told = (await client.get(f"/api/v1/jobs/{many}/explain")).json()
        assert "skip" not in {each["code"] for each in told["changes"]}
        cell = (await client.get(f"/api/v1/jobs/{many}/executions")).json()["executions"][0]
        path = f"/api/v1/jobs/{cell['execution_id']}"
        assert (await client.get(f"{path}/skip")).json()["price"] == 1
        told = (await client.get(f"{path}/explain")).json()
        assert "skip" in {each["code"] for each in told["changes"]}


async def test_users_may_have_a_slash_in_their_names(world: World, served: Gateway) -> None:
    """Only a slash that is sent as such divides a path."""
    async with served.client() as client:
        for user, sent in (("org/42", "org%2F42"), ("a/credits", "a%2fcredits"), ("%2F", "%252F")):
            changed = await client.put(f"/admin/users/{sent}", json={"priority": "high"})
            assert changed.json() == {"user_id": user, "priority": "high"}
            accepted = await client.post("/api/v1/jobs", json={"service": "work", "user_id": user})
            assert accepted.json()["priority"] == "high"
            gift = {"amount": 5, "operation_key": "gift"}
            given = await client.post(f"/admin/users/{sent}/credits", json=gift)
            assert given.json()["balance"] == 5
            found = (await client.get(f"/api/v1/users/{sent}/credits")).json()
            assert (found["user_id"], found["balance"]) == (user, 5)
        for path in ("/admin/users/org/42", "/admin/users/a%2fb/c", "/api/v1/jobs%2F1"):
            assert (await client.put(path, json={"priority": "high"})).status_code == 404
        wrong = await client.put("/admin/users/a%2Fb/credits", json={"priority": "high"})
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        gone = await client.get("/api/v1/jobs/a%2Fb")
        assert (gone.status_code, gone.json()["instance"]) == (404, "/api/v1/jobs/a/b")


async def test_a_fan_out_asks_long_questions_of_models_with_short_names(served: Gateway) -> None:
    async with served.client() as client:

        async def status(axis: str, size: int) -> int:
            sent = {"service": "work", "input_data": {}, "matrix": {axis: ["x" * size]}}
            return (await client.post("/api/v1/jobs", json=sent)).status_code

        assert await status("question", 10_000) == 202
        assert await status("question", 10_001) == 422
        assert await status("model", 201) == 422
        assert await status("region", 201) == 422


async def test_an_operation_that_is_sent_again_with_another_amount_is_a_conflict(
    world: World, served: Gateway
) -> None:
    path = "/admin/users/ada/credits"
    async with served.client() as client:
        for amount, status in ((10, 200), (11, 409), (-10, 409), (10, 200)):
            answer = await client.post(path, json={"amount": amount, "operation_key": "gift"})
            assert answer.status_code == status
            assert answer.json().get("code") == ("conflict" if status == 409 else None)
        for amount, status in ((-4, 200), (4, 409), (-4, 200)):
            answer = await client.post(path, json={"amount": amount, "operation_key": "back"})
            assert answer.status_code == status
        assert (await client.get("/api/v1/users/ada/credits")).json()["balance"] == 6
        changes = (await client.get("/admin/audit")).json()["changes"]
        assert [each["after"] for each in changes] == ["6", "10"]
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


async def test_a_job_tells_its_first_start_its_last_error_and_how_long_it_took(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        job = await submitted(served, feature_name="both", user_id="ada")
        path = f"/api/v1/jobs/{job}"
        lease = await world.claim_one()
        first = lease.started_at
        await world.pass_time(2)
        await world.engine.fail(lease, Fault.TRANSIENT, "the lens was foggy")
        seen = (await client.get(path)).json()
        assert seen["error"] is None
        assert (seen["last_error"]["code"], seen["last_error"]["attempt"]) == ("transient", 1)
        assert seen["last_error"]["message"] == "the lens was foggy"
        await world.pass_time(5)
        for _ in range(2):
            lease = await world.claim_one()
            await world.pass_time(3)
            await world.engine.complete(lease, {"out": 1})
        seen = (await client.get(path)).json()
        assert seen["started_at"] == iso(first)
        assert (await client.get("/api/v1/jobs")).json()["jobs"][0]["started_at"] == iso(first)
        assert seen["last_progress_at"] == seen["finished_at"]
        assert seen["execution_time_ms"] == 8000
        assert seen["context"]["step_0_first"]["metrics"]["execution_time_ms"] == 3000
        assert seen["assigned_worker_id"] == lease.worker
        assert seen["last_error"] is None
        assert seen["trace_id"] == job.replace("-", "")


async def test_a_job_that_cannot_be_resumed_says_why_and_what_can_be_done(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        job = await submitted(served, service="work", user_id="ada")
        await world.engine.fail(await world.claim_one(), Fault.INVALID_INPUT, "no")
        refused = await client.post(f"/api/v1/jobs/{job}/resume")
        assert refused.status_code == 409
        assert f"/api/v1/jobs/{job}/replay" in refused.json()["detail"]


async def test_an_unknown_task_type_names_the_table_that_lets_it_in(served: Gateway) -> None:
    async with served.client() as client:
        refused = await client.post("/api/v1/tasks", json={"task_type": "nope", "parameters": {}})
        assert refused.status_code == 422
        assert "[tasks]" in refused.json()["detail"]
