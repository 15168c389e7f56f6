"""Clients of the SDK: submit, wait, listen, cancel."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane import (
    ApiError,
    AsyncClient,
    Client,
    Context,
    JobCancelled,
    JobDead,
    JobFailed,
    JobRequest,
    TaskFailed,
    Worker,
)
from fairlane.client.types import Submitted
from fairlane.errors import InvalidInput
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
        own = untraced.job_id.replace("-", "")
        trace_id, onward = (await client.wait(untraced.job_id)).result
        assert trace_id == own
        assert onward.startswith(f"00-{own}-")


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


def moody() -> Worker:
    worker = Worker()

    @worker.task("moody")
    async def moody(how: str) -> str:
        if how == "wrong":
            raise TaskFailed("the file is not a picture", code="invalid_input")
        if how == "shaky":
            raise RuntimeError("out of paint")
        if how == "slow":
            await asyncio.Event().wait()
        return how.upper()

    return worker


async def test_a_result_is_waited_for_or_raises_why_there_is_none(tmp_path: Path) -> None:
    async with (
        scene(tmp_path) as at,
        at.working(moody(), "http"),
        AsyncClient(at.served.url) as client,
    ):
        good = await client.submit("moody", "good")
        assert await client.result(good, timeout=20) == "GOOD"
        assert await client.result(good.job_id) == "GOOD"
        wrong = await client.submit("moody", "wrong")
        with pytest.raises(JobFailed, match="the file is not a picture") as failed:
            await client.result(wrong)
        assert (failed.value.job_id, failed.value.reason) == (wrong.job_id, "INVALID_INPUT")
        shaky = await client.submit("moody", "shaky", max_retries=0)
        with pytest.raises(JobDead, match="RuntimeError: out of paint") as dead:
            await client.result(shaky)
        assert dead.value.reason == "MAX_ATTEMPTS"
        slow = await client.submit("moody", "slow")
        with pytest.raises(TimeoutError):
            await client.result(slow, timeout=0.01)
        await client.cancel(slow.job_id)
        with pytest.raises(JobCancelled):
            await client.result(slow)


async def test_a_plain_client_gets_results_and_lists_too(tmp_path: Path) -> None:
    def program(url: str) -> tuple[str, list[str]]:
        with Client(url) as client:
            job = client.submit("moody", "good", user="ada")
            found = client.result(job, timeout=20)
            return found, [each.job_id for each in client.list(user="ada").jobs]

    async with scene(tmp_path) as at, at.working(moody(), "http"):
        found, listed = await asyncio.to_thread(program, at.served.url)
        assert found == "GOOD"
        assert len(listed) == 1


async def test_jobs_are_listed_by_what_they_are_page_by_page(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, AsyncClient(at.served.url) as client:
        jobs = [(await client.submit("draw", n, tags=["a b"])).job_id for n in range(5)]
        other = await client.submit("shout", "oh", user="ada & bob")
        await client.cancel(jobs[0])
        page = await client.list(name="draw", status="queued", tag="a b", limit=3)
        assert [each.job_id for each in page.jobs] == jobs[:1:-1]
        rest = await client.list(name="draw", status="queued", tag="a b", limit=3, cursor=page.next)
        assert ([each.job_id for each in rest.jobs], rest.next) == ([jobs[1]], None)
        both = await client.list(status=("queued", "cancelled"))
        assert len(both.jobs) == 6
        (own,) = (await client.list(user="ada & bob")).jobs
        assert (own.job_id, own.name, own.result) == (other.job_id, "shout", None)


async def test_a_falsy_input_arrives_and_one_that_is_not_json_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, AsyncClient(at.served.url) as client:
        falsy: tuple[object, ...] = (0, "", [], False, {})
        for value in falsy:
            job = await client.submit("echo", value)
            assert (await client.get(job.job_id)).sent["input_data"] == value
        with pytest.raises(InvalidInput, match=r"request\.input_data\.x\[1\] is nan"):
            await client.submit("echo", {"x": [1, float("nan")]})


@contextmanager
def silent(then: Callable[[], None]) -> Iterator[str]:
    """The address of a server that never answers. `then` is called when it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            with listener.accept()[0] as connection:
                connection.recv(1)
                then()
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=take)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_plain_clients_wait_and_its_thread() -> None:
    before = threading.active_count()
    with silent(interrupt) as url, Client(url) as client, pytest.raises(KeyboardInterrupt):
        client.get("a")
    assert threading.active_count() == before


def test_a_plain_client_that_is_closed_cancels_what_other_threads_wait_for() -> None:
    asked = threading.Event()
    ended: list[BaseException] = []
    with silent(asked.set) as url:
        client = Client(url)

        def wait() -> None:
            try:
                client.get("a")
            except CancelledError as error:
                ended.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        asked.wait()
        client.close()
        client.close()
        waiting.join()
    assert len(ended) == 1


def test_a_program_ends_that_never_closes_its_plain_client() -> None:
    program = "from fairlane import Client; client = Client(); print('end')"
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert (told.returncode, told.stdout, told.stderr) == (0, b"end\n", b"")
