"""Tasks over HTTP, in the words of task queues."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.model.key import Role
from tests.api.server import Gateway
from tests.world import World

pytestmark = [pytest.mark.every_store, pytest.mark.timeout(60)]


async def test_a_task_is_accepted_and_can_be_looked_at(world: World, served: Gateway) -> None:
    async with served.client() as client:
        sent = {"task_type": "work", "priority": "high", "parameters": {"a": 1}}
        answer = await client.post("/api/v1/tasks", json=sent)
        assert answer.status_code == 202
        task = answer.json()
        assert (task["status"], task["queue_position"]) == ("queued", 1)
        seen = (await client.get(answer.headers["location"])).json()
        assert (seen["priority"], seen["parameters"], seen["max_retries"]) == ("high", {"a": 1}, 5)
        assert (seen["status"], seen["queue_position"], seen["result"]) == ("queued", 1, None)


async def test_a_key_sent_again_is_answered_with_the_same_task(served: Gateway) -> None:
    """I12: also when fifty ask at once; compared as canonical JSON."""
    async with served.client() as client:
        sent = {"task_type": "work", "parameters": {"a": 1, "b": 2}, "idempotency_key": "order-7"}
        answers = await asyncio.gather(
            *(client.post("/api/v1/tasks", json=sent) for _ in range(50))
        )
        assert len({each.json()["task_id"] for each in answers}) == 1
        assert sorted(each.status_code for each in answers) == [200] * 49 + [202]
        turned = {**sent, "parameters": {"b": 2, "a": 1}}
        again = await client.post("/api/v1/tasks", json=turned)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
        other = await client.post("/api/v1/tasks", json={**sent, "parameters": {}})
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_cancelled_task_says_so(world: World, served: Gateway) -> None:
    async with served.client() as client:
        answer = await client.post("/api/v1/tasks", json={"task_type": "work"})
        where = answer.headers["location"]
        assert (await client.delete(where)).json()["status"] == "cancelled"
        assert (await client.get(where)).json()["status"] == "cancelled"
        assert (await client.delete(where)).status_code == 409


async def test_a_dead_task_is_a_dead_letter(world: World, served: Gateway) -> None:
    async with served.client() as client:
        answer = await client.post("/api/v1/tasks", json={"task_type": "scarce"})
        await world.engine.fail(await world.claim_one(), message="no")
        seen = (await client.get(answer.headers["location"])).json()
        assert (seen["status"], seen["error"]["code"]) == ("dead_letter", "MAX_ATTEMPTS")
        assert (seen["error"]["message"], seen["error"]["retriable"]) == ("no", True)


async def test_only_a_key_with_the_right_may_choose_the_tier(served: Gateway) -> None:
    async with served.client(await served.key(Role.CLIENT)) as client:
        sent = {"task_type": "work", "priority": "high"}
        answer = await client.post("/api/v1/tasks", json=sent)
        assert (answer.status_code, answer.json()["code"]) == (422, "field_not_allowed")
        assert (await client.post("/api/v1/tasks", json={"task_type": "work"})).status_code == 202


async def test_a_dead_letter_is_replayed_once_however_many_ask(
    world: World, served: Gateway
) -> None:
    """I23: fifty at once, one of them wins; every attempt stays to be looked at."""
    async with served.client() as client:
        answer = await client.post("/api/v1/tasks", json={"task_type": "scarce"})
        task = answer.json()["task_id"]
        await world.engine.fail(await world.claim_one(), message="no")
        seen = (await client.get(f"/admin/queue-dead/{task}/attempts")).json()
        (attempt,) = seen["attempts"]
        assert (attempt["message"], attempt["outcome"]) == ("no", "failed")
        answers = await asyncio.gather(
            *(client.post(f"/admin/queue-dead/{task}/replay") for _ in range(50))
        )
        assert sorted(each.status_code for each in answers) == [202] + [409] * 49
        assert (await client.get(f"/admin/queue-dead/{task}/attempts")).status_code == 404
        assert len(await world.claim(5)) == 1
        assert (await world.job(task)).fence == 2
