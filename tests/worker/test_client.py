"""Clients of the SDK: submit, wait, listen, cancel."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlane import ApiError, AsyncClient, Client, Context, JobRequest, Worker
from fairlane.client.shapes import Submitted
from fairlane.model.key import Role
from tests.proxy import Proxy
from tests.worker.scene import scene

pytestmark = pytest.mark.timeout(60)


def echo() -> Worker:
    worker = Worker()

    @worker.task("echo")
    async def answer(text: str) -> dict[str, str]:
        return {"text": text}

    return worker


async def test_a_client_submits_and_waits(tmp_path: Path) -> None:
    async with (
        scene(tmp_path) as at,
        at.working(echo(), "http"),
        AsyncClient(at.served.url) as client,
    ):
        job = await client.submit("echo", {"text": "oh"}, user="ada", tags=["x"])
        assert (job.status, job.priority) == ("queued", "medium")
        done = await client.wait(job.job_id, timeout=20)
        assert (done.status, done.result, done.user) == ("completed", {"text": "oh"}, "ada")
        assert done.ended
        assert done.error is None
        told = [event.type async for event in client.events(job.job_id)]
        assert told == ["WAITING", "STEP_START", "STEP_COMPLETE", "JOB_COMPLETE"]
        rest = [event.seq async for event in client.events(job.job_id, after=2)]
        assert rest == [3, 4]


async def test_a_trace_goes_from_the_caller_to_the_task(tmp_path: Path) -> None:
    worker, trace = Worker(), "0af7651916cd43dd8448eb211c80319c"

    @worker.task("trace")
    async def told(ctx: Context) -> list[str | None]:
        return [ctx.trace_id, ctx.traceparent]

    async with (
        scene(tmp_path) as at,
        at.working(worker, "http"),
        AsyncClient(at.served.url) as client,
    ):
        job = await client.submit("trace", traceparent=f"00-{trace}-b7ad6b7169203331-01")
        trace_id, onward = (await client.wait(job.job_id)).result
        assert trace_id == trace
        assert onward.startswith(f"00-{trace}-")
        assert "b7ad6b7169203331" not in onward
        untraced = await client.submit("trace")
        assert (await client.wait(untraced.job_id)).result == [None, None]


async def test_many_jobs_have_their_own_outcomes(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, AsyncClient(at.served.url) as client:
        requests = [JobRequest("echo", n) for n in range(1100)]
        requests[3] = JobRequest("echo", priority="gold")
        outcomes = await client.submit_many(requests)
        assert len(outcomes) == 1100
        assert sum(isinstance(each, Submitted) for each in outcomes) == 1099
        wrong = outcomes[3]
        assert isinstance(wrong, ApiError)
        assert (wrong.status, wrong.code) == (422, "unknown_name")


async def test_a_cancelled_job_is_over(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, AsyncClient(at.served.url) as client:
        job = await client.submit("echo", capabilities={"gpu"}, timeout=7)
        waiting = asyncio.create_task(client.wait(job.job_id))
        assert (await at.world.job(job.job_id)).lane == "echo||gpu"
        assert (await at.world.job(job.job_id)).timeout == 7_000_000
        await client.cancel(job.job_id)
        assert (await waiting).status == "cancelled"
        with pytest.raises(ApiError) as caught:
            await client.cancel(job.job_id)
        assert (caught.value.status, caught.value.code) == (409, "wrong_state")


async def test_a_key_that_does_not_hold_is_refused_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.served.key(Role.CLIENT)
        async with AsyncClient(at.served.url, "who.knows") as client:
            with pytest.raises(ApiError) as caught:
                await client.get("x")
            assert caught.value.status == 401


async def test_a_submit_whose_answer_is_lost_stays_one_job(tmp_path: Path) -> None:
    """I6: the request is sent again, under the same key."""
    async with (
        scene(tmp_path) as at,
        Proxy(at.served.url) as proxy,
        AsyncClient(proxy.url) as client,
    ):
        proxy.drop_replies()
        submitting = asyncio.create_task(client.submit("echo", {"text": "once"}))
        await proxy.dropped()
        proxy.go_on()
        job = await submitting
        (only,) = (await at.engine.list_jobs()).jobs
        assert only.id == job.job_id


def test_a_program_without_a_loop_has_a_client_too(tmp_path: Path) -> None:
    """In a thread of its own; the server needs this one's loop."""
    seen: list[object] = []

    def program(url: str) -> None:
        with Client(url) as client:
            job = client.submit("echo", {"text": "oh"})
            seen.extend(event.type for event in client.events(job.job_id) if event.seq)
            seen.append(client.wait(job.job_id).result)
            (other,) = client.submit_many([JobRequest("nobody")])
            assert isinstance(other, Submitted)
            client.cancel(other.job_id)
            seen.append(client.get(other.job_id).status)

    async def main() -> None:
        async with scene(tmp_path) as at, at.working(echo(), "direct"):
            await asyncio.to_thread(program, at.served.url)

    asyncio.run(main())
    assert seen == [
        "WAITING",
        "STEP_START",
        "STEP_COMPLETE",
        "JOB_COMPLETE",
        {"text": "oh"},
        "cancelled",
    ]
