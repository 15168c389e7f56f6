"""Workers that pull over HTTP: register, poll, heartbeat, report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from fairlane.clock import seconds
from fairlane.model.key import Role
from fairlane.model.state import State
from fairlane.model.worker import Loaded
from fairlane.units import SECOND
from tests.api.raw import exchange
from tests.api.server import Gateway
from tests.core import core_of
from tests.dispatch.scene import comes_true
from tests.world import World

pytestmark = [pytest.mark.every_store, pytest.mark.timeout(60)]

NOBODY = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"


class Hand:
    """A registered worker, as a program in any language would speak for it."""

    def __init__(self, client: httpx2.AsyncClient, registered: dict[str, Any]) -> None:
        self.client, self.registered = client, registered
        self.id = registered["worker_id"]

    async def post(self, what: str, **body: Any) -> httpx2.Response:
        return await self.client.post(f"/internal/workers/{self.id}/{what}", json=body)

    async def poll(self, n: int = 1, wait: float = 0, **more: Any) -> dict[str, Any]:
        answer = await self.post("poll", available_capacity=n, wait_seconds=wait, **more)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def take(self, **more: Any) -> dict[str, Any]:
        (task,) = (await self.poll(**more))["tasks"]
        return dict(task)

    async def result(self, task: dict[str, Any], status: str, **more: Any) -> httpx2.Response:
        return await self.post("result", **named(task), status=status, **more)


def named(task: dict[str, Any]) -> dict[str, str]:
    return {"task_id": task["task_id"], "lease": task["lease"]}


@asynccontextmanager
async def hand(served: Gateway, key: str | None = None, **offer: Any) -> AsyncIterator[Hand]:
    async with served.client(key) as client:
        answer = await client.post("/internal/workers/register", json=offer)
        assert answer.status_code == 201, answer.text
        yield Hand(client, answer.json())


async def submit(client: httpx2.AsyncClient, **more: Any) -> str:
    answer = await client.post("/api/v1/tasks", json={"task_type": "work", **more})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["task_id"])


async def until_idle(served: Gateway, workers: int) -> None:
    """So many wait in a claim."""
    while (await core_of(served.engine).index.stats()).idle != workers:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)


async def test_a_task_goes_through_a_worker_and_its_result_can_be_read(served: Gateway) -> None:
    async with hand(served, capacity=2, version="7") as worker:
        assert worker.registered["poll_interval_ms"] == 1000
        assert (worker.registered["heartbeat_seconds"], worker.registered["lease_seconds"]) == (
            30,
            90,
        )
        task_id = await submit(worker.client, parameters={"n": 1}, timeout_seconds=7)
        task = await worker.take()
        assert (task["task_id"], task["task_type"], task["attempt"]) == (task_id, "work", 1)
        assert (task["parameters"], task["timeout_seconds"]) == ({"n": 1}, 7)
        seen = (await worker.client.get(f"/api/v1/tasks/{task_id}")).json()
        assert (seen["status"], seen["assigned_worker_id"]) == ("executing", worker.id)
        (shown,) = (await worker.client.get("/api/v1/workers")).json()["workers"]
        assert (shown["worker_id"], shown["current_tasks"]) == (worker.id, [task_id])
        assert (shown["status"], shown["version"], shown["current_load"]) == ("active", "7", 1)
        answer = await worker.result(task, "completed", result={"m": 2})
        assert answer.status_code == 200
        assert answer.json()["results"][0]["status"] == "completed"
        seen = (await worker.client.get(f"/api/v1/tasks/{task_id}")).json()
        assert (seen["status"], seen["result"], seen["retry_count"]) == ("completed", {"m": 2}, 0)
        assert seen["assigned_worker_id"] == worker.id


async def test_an_idle_worker_is_woken_by_a_new_task(served: Gateway) -> None:
    """Nothing polls: no time of the queue's own clock passes at all."""
    async with hand(served) as worker:
        waiting = asyncio.create_task(worker.take(wait=20))
        await until_idle(served, 1)
        task_id = await submit(worker.client)
        assert (await waiting)["task_id"] == task_id


async def test_the_same_poll_again_gets_the_same_leases(world: World, served: Gateway) -> None:
    """An answer that was lost on the way costs nothing, whichever process is asked again."""
    async with hand(served) as worker:
        for _ in range(3):
            await submit(worker.client, parameters={"big": "x" * 10_000})
        first = (await worker.poll(2, poll_id="p-1", again=False))["tasks"]
        served.app.app_context.worker_service.__init__(served.engine)  # type: ignore[misc] # as another process
        served.app.app_context.worker_service.start()
        again = (await worker.poll(2, poll_id="p-1"))["tasks"]
        assert len(again) == 2
        assert sorted(again, key=str) == sorted(first, key=str)
        assert (await worker.result(again[0], "completed")).status_code == 200
        assert [each["task_id"] for each in (await worker.poll(2, poll_id="p-1"))["tasks"]] == [
            again[1]["task_id"]
        ]
        assert len((await worker.poll(2, poll_id="p-2"))["tasks"]) == 1


async def test_a_worker_says_for_how_long_it_has_its_model(world: World, served: Gateway) -> None:
    async with hand(served) as worker:
        told = {"loaded": "flux", "age_seconds": 40, "tasks": 2}
        await worker.poll(1, model=told)
        loaded = (await served.engine.model_report("work")).workers[worker.id]
        assert loaded == Loaded("flux", world.clock.now() - 40 * SECOND, 2)
        await worker.poll(1, model={"loaded": "flux"})
        assert (await served.engine.model_report("work")).workers[worker.id] == loaded
        await worker.poll(1, model={"loaded": "sdxl"})
        loaded = (await served.engine.model_report("work")).workers[worker.id]
        assert loaded == Loaded("sdxl", world.clock.now(), 0)


async def test_many_results_in_one_request_have_their_own_outcomes(
    world: World, served: Gateway
) -> None:
    async with hand(served) as worker, hand(served) as other:
        for _ in range(4):
            await submit(worker.client)
        good, bad, gone = (await worker.poll(3))["tasks"]
        foreign = await other.take()
        await worker.client.delete(f"/api/v1/tasks/{gone['task_id']}")
        results = [
            {**named(good), "status": "completed", "result": 1},
            {**named(bad), "status": "failed", "error": {"message": "no", "retriable": False}},
            {**named(gone), "status": "completed"},
            {**named(foreign), "status": "completed"},
            {"task_id": NOBODY, "lease": "guessed", "status": "completed"},
        ]
        answer = (await worker.post("result", results=results)).json()["results"]
        assert [(each["http_status"], each["status"]) for each in answer] == [
            (200, "completed"),
            (200, "failed"),
            (409, "cancelled"),
            (403, None),
            (403, None),
        ]
        assert (await world.job(foreign["task_id"])).state is State.RUNNING


async def test_a_result_sent_again_is_answered_as_before(world: World, served: Gateway) -> None:
    """I6: also by a process that did not hand the task out; another ending is refused."""
    async with hand(served) as worker:
        ended = {}
        for status in ("completed", "failed", "released"):
            await submit(worker.client)
            task = await worker.take()
            ended[status] = task
            assert (await worker.result(task, status)).status_code == 200
            if status == "released":  # it is next in line again
                assert (await worker.take())["attempt"] == 1
        for _ in range(2):
            for status, task in ended.items():
                assert (await worker.result(task, status)).status_code == 200, status
                other = "failed" if status == "completed" else "completed"
                answer = await worker.result(task, other)
                assert (answer.status_code, answer.json()["code"]) == (409, "stale_lease")
            served.app.app_context.worker_service.__init__(served.engine)  # type: ignore[misc] # as another process
        assert len(await world.engine.attempts(ended["completed"]["task_id"])) == 1


async def test_a_stale_lease_hears_where_its_task_is(world: World, served: Gateway) -> None:
    """S21, I3: progress and result compare the token; the stored result is the second's."""
    async with hand(served) as slow, hand(served) as quick:
        task_id = await submit(slow.client)
        stale = await slow.take()
        await world.pass_time(91)
        await world.pass_time(10)
        task = await quick.take()
        assert task["task_id"] == task_id
        for answer in (
            await slow.result(stale, "completed", result="old"),
            await slow.post("progress", **named(stale), percent=5),
        ):
            assert (answer.status_code, answer.json()["code"]) == (409, "stale_lease")
            assert answer.json()["current_state"] == "executing"
        heard = (await slow.post("heartbeat", leases=[named(stale)])).json()
        assert heard == {"acknowledged": True, "cancel": [], "lost": [task_id], "drain": False}
        assert (await quick.result(task, "completed", result="new")).status_code == 200
        late = await slow.result(stale, "completed", result="old")
        assert (late.status_code, late.json()["current_state"]) == (409, "completed")
        assert (await slow.client.get(f"/api/v1/tasks/{task_id}")).json()["result"] == "new"


async def test_what_another_worker_holds_is_out_of_reach(world: World, served: Gateway) -> None:
    """S21: with its secret or without, through its own id or the other's."""
    mine, theirs = await served.key(Role.WORKER), await served.key(Role.WORKER)
    async with hand(served, mine) as holder, hand(served, theirs) as thief:
        task_id = await world.submit(caller=None)
        task = await holder.take()
        guesses = [task["lease"], "guessed", "0" * 32]
        for lease in guesses:
            stolen = {"task_id": task_id, "lease": lease}
            for answer in (
                await thief.post("result", **stolen, status="completed"),
                await thief.post("progress", **stolen, percent=1),
            ):
                assert (answer.status_code, answer.json()["code"]) == (403, "not_yours")
                assert "current_state" not in answer.json()
        answer = await thief.post("heartbeat", leases=[named(task)])
        assert answer.status_code == 403
        as_other = Hand(thief.client, holder.registered)
        for answer in (
            await as_other.post("poll", available_capacity=1, wait_seconds=0),
            await as_other.post("heartbeat"),
            await as_other.result(task, "completed"),
            await as_other.post("progress", **named(task), percent=1),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "not_yours")
        nobody = Hand(thief.client, {"worker_id": NOBODY})
        assert (await nobody.post("heartbeat")).status_code == 404
        assert (await world.job(task_id)).state is State.RUNNING
        for path in (f"/api/v1/tasks/{task_id}", f"/api/v1/jobs/{task_id}", "/api/v1/workers"):
            assert (await thief.client.get(path)).status_code == 403


async def test_a_heartbeat_keeps_leases_alive_named_or_not(world: World, served: Gateway) -> None:
    async with hand(served) as worker:
        await submit(worker.client)
        task = await worker.take()
        for body in ({"leases": [named(task)]}, {}, {"leases": [named(task)]}, {}):
            await world.pass_time(60)
            heard = (await worker.post("heartbeat", **body)).json()
            assert heard == {"acknowledged": True, "cancel": [], "lost": [], "drain": False}
        assert (await worker.result(task, "completed")).status_code == 200


async def test_a_task_without_heartbeats_is_somebody_elses(world: World, served: Gateway) -> None:
    """I4: after its lease and its back-off, with one attempt used."""
    async with hand(served, heartbeat_seconds=5) as worker:
        task_id = await submit(worker.client)
        await worker.take()
        await world.pass_time(14)
        assert (await worker.poll())["tasks"] == []
        await world.pass_time(2)
        await world.pass_time(2)
        task = await worker.take()
        assert (task["task_id"], task["attempt"]) == (task_id, 2)


async def test_a_cancel_ends_an_open_poll_of_a_worker_without_room(served: Gateway) -> None:
    """I22: within a second, because nobody has to wait for a heartbeat; here no time passes."""
    async with hand(served, capacity=1) as worker:
        task_id = await submit(worker.client)
        task = await worker.take()
        waiting = asyncio.create_task(worker.poll(0, wait=20, leases=[named(task)]))
        await comes_true(lambda: bool(core_of(served.engine).subscriptions.jobs()))
        await worker.client.delete(f"/api/v1/tasks/{task_id}")
        heard = await waiting
        assert (heard["tasks"], heard["cancel"], heard["lost"]) == ([], [task_id], [])
        beat = (await worker.post("heartbeat", leases=[named(task)])).json()
        assert beat["cancel"] == [task_id]
        answer = await worker.result(task, "completed")
        assert (answer.status_code, answer.json()["current_state"]) == (409, "cancelled")


async def test_a_cancelled_task_frees_its_slot_when_the_worker_says_so(
    world: World, served: Gateway
) -> None:
    async with hand(served) as worker:
        task_id = await submit(worker.client, task_type="scarce")
        await submit(worker.client, task_type="scarce")
        task = await worker.take()
        await worker.client.delete(f"/api/v1/tasks/{task_id}")
        assert (await worker.poll())["tasks"] == []
        assert (await worker.result(task, "released")).status_code == 409
        assert (await worker.poll())["tasks"] != []
        await world.healthy()


async def test_a_poll_whose_caller_hung_up_takes_nothing(world: World, served: Gateway) -> None:
    """What its claim still brings is given back; the next poll gets it on its first attempt."""
    async with hand(served) as worker:
        leaving = asyncio.create_task(worker.poll(1, wait=20))
        await until_idle(served, 1)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await until_idle(served, 0)
        await submit(worker.client)
        assert (await worker.take())["attempt"] == 1


async def test_a_drained_worker_gets_no_more_and_hears_of_it(served: Gateway) -> None:
    async with hand(served) as worker:
        waiting = asyncio.create_task(worker.poll(1, wait=20))
        await until_idle(served, 1)
        answer = await worker.client.post(f"/admin/workers/{worker.id}/drain")
        assert (answer.status_code, answer.json()["status"]) == (200, "draining")
        assert (await waiting)["drain"] is True
        await submit(worker.client)
        nothing = {"tasks": [], "cancel": [], "lost": [], "drain": True, "confirm": False}
        assert await worker.poll() == nothing
        heard = (await worker.post("heartbeat", status="active")).json()
        assert heard["drain"] is True, "a state goes only onward"
        assert (await worker.post("heartbeat", status="dead")).status_code == 200
        (shown,) = (await worker.client.get("/api/v1/workers")).json()["workers"]
        assert shown["status"] == "dead"
        assert (await worker.client.post(f"/admin/workers/{NOBODY}/drain")).status_code == 404


async def test_released_work_costs_no_attempt_and_failed_work_does(
    world: World, served: Gateway
) -> None:
    """I18."""
    async with hand(served) as worker:
        await submit(worker.client)
        assert (await worker.result(await worker.take(), "released")).status_code == 200
        task = await worker.take()
        assert task["attempt"] == 1
        error = {"message": "out of memory", "retriable": True}
        answer = await worker.result(task, "failed", error=error)
        assert answer.json()["results"][0]["status"] == "queued"
        assert (await worker.poll())["tasks"] == []
        await world.pass_time(2)
        assert (await worker.take())["attempt"] == 2


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"message": "bad", "retriable": False}, "failed", "SERVICE_ERROR"),
        ({"message": "bad", "code": "INVALID_INPUT"}, "failed", "INVALID_INPUT"),
        ({"message": "bad", "code": "quality"}, "failed", "QUALITY"),
        ({"message": "bad", "code": "E_MINE"}, "queued", None),
        ({"message": "bad", "code": "timeout"}, "queued", None),
    ],
)
async def test_an_error_says_whether_another_try_may_help(
    served: Gateway, error: dict[str, Any], status: str, code: str | None
) -> None:
    async with hand(served) as worker:
        task_id = await submit(worker.client)
        await worker.result(await worker.take(), "failed", error=error)
        seen = (await worker.client.get(f"/api/v1/tasks/{task_id}")).json()
        assert (seen["status"], (seen["error"] or {}).get("code")) == (status, code)


async def test_a_result_that_is_too_large_fails_its_task(world: World, served: Gateway) -> None:
    """S13: one that fits a request but not the limit, and one that is no request any more."""
    most = world.settings.limits.result_bytes
    async with hand(served) as worker:
        task_id = await submit(worker.client)
        task = await worker.take()
        answer = await worker.result(task, "completed", result="x" * most)
        assert (answer.status_code, answer.json()["code"]) == (413, "result_too_large")
        assert answer.json()["current_state"] == "failed"
        seen = (await worker.client.get(f"/api/v1/tasks/{task_id}")).json()
        assert seen["error"]["code"] == "RESULT_TOO_LARGE"
        await submit(worker.client)
        task = await worker.take()
        head = f"POST /internal/workers/{worker.id}/result HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        large = f"{head}Content-Length: {most + (1 << 17)}"
        refused = await exchange(served.port, large.encode())
        assert (refused.status, refused.json["code"]) == (413, "too_large")
        assert (await worker.result(task, "completed", result=[0.5] * 50_000)).status_code == 200


async def test_a_result_that_cannot_be_stored_leaves_the_others_alone(served: Gateway) -> None:
    async with hand(served) as worker:
        for _ in range(2):
            await submit(worker.client)
        good, bad = (await worker.poll(2))["tasks"]
        results = [
            {**named(bad), "status": "completed", "result": "\0"},
            {**named(good), "status": "completed"},
        ]
        answer = (await worker.post("result", results=results)).json()["results"]
        assert [each["http_status"] for each in answer] == [422, 200]
        assert (await worker.result(bad, "completed")).status_code == 200


async def test_progress_reaches_whoever_looks(served: Gateway) -> None:
    async with hand(served) as worker:
        task_id = await submit(worker.client)
        task = await worker.take()
        answer = await worker.post("progress", **named(task), percent=40, text="half way, almost")
        assert answer.json() == {"acknowledged": True}
        seen = (await worker.client.get(f"/api/v1/tasks/{task_id}")).json()
        assert seen["progress"] == {"percent": 40, "text": "half way, almost"}


async def test_a_task_runs_only_where_everything_it_requires_is_offered(
    world: World, served: Gateway
) -> None:
    """And one that nobody can run never blocks others."""
    async with hand(served) as plain:
        impossible = await submit(plain.client, required_capabilities=["gpu", "huge"])
        possible = await submit(plain.client)
        assert (await plain.take())["task_id"] == possible
        stats = (await plain.client.get("/api/v1/queue/stats")).json()
        assert (stats["unrunnable"], stats["unrunnable_by_type"]) == (1, {"work": 1})
        assert stats["workers"]["active"] == 1
        assert stats["queues"]["medium"]["depth"] == 1
        assert (await plain.client.get(f"/api/v1/tasks/{impossible}")).json()["unrunnable"] is True
        explained = (await plain.client.get(f"/api/v1/jobs/{impossible}/explain")).json()
        assert explained["reasons"][0]["code"] == "unrunnable"
        shown = (await plain.client.get(f"/api/v1/jobs/{impossible}")).json()
        assert shown["reason"].startswith("no live worker runs work with gpu, huge")
        async with hand(served, capabilities=["gpu", "huge", "more"]) as able:
            seen = (await plain.client.get(f"/api/v1/tasks/{impossible}")).json()
            assert seen["unrunnable"] is False
            assert (await able.poll(capabilities=["gpu"]))["tasks"] == []
            assert (await able.take())["task_id"] == impossible


async def test_a_worker_serves_the_types_and_tiers_it_names(served: Gateway) -> None:
    async with hand(served, task_types=["first"], tiers=["high"]) as worker:
        await submit(worker.client, task_type="work", priority="high")
        await submit(worker.client, task_type="first", priority="low")
        wanted = await submit(worker.client, task_type="first", priority="high")
        assert [each["task_id"] for each in (await worker.poll(5))["tasks"]] == [wanted]
        answer = await worker.client.post("/internal/workers/register", json={"tiers": ["gold"]})
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown_name")


async def test_a_leaving_process_answers_open_polls_and_takes_no_new_ones(served: Gateway) -> None:
    async with hand(served) as worker:
        task_id = await submit(worker.client)
        task = await worker.take()
        waiting = asyncio.create_task(worker.poll(1, wait=20))
        await until_idle(served, 1)
        served.app.app_context.worker_service.end_polls()
        assert (await waiting)["tasks"] == []
        answer = await worker.post("poll", available_capacity=1)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (await worker.result(task, "completed")).status_code == 200
        assert (await served.engine.get(task_id)).state is State.COMPLETED


async def test_a_lease_lasts_three_of_the_heartbeats_a_worker_registered_with(
    world: World, served: Gateway
) -> None:
    async with hand(served, heartbeat_seconds=4) as worker:
        task_id = await submit(worker.client)
        await worker.take()
        assert (await world.job(task_id)).lease_until == world.clock.now() + seconds(12)
