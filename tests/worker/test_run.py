"""`Client.run` and `Client.stream`: a job on one connection, with the output of a pull worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlane import AsyncClient, Client, Context, JobFailed, TaskFailed, Worker
from fairlane.client.types import Event, RunResult
from fairlane.errors import JobTimeout
from fairlane.model.state import State
from tests.worker.scene import scene

pytestmark = pytest.mark.timeout(60)

WORDS = ["To", " keep", " warm", "."]


def speaker() -> Worker:
    worker = Worker()

    @worker.task("speak")
    async def speak(ctx: Context) -> str:
        for word in WORDS:
            ctx.output(word)
        return "".join(WORDS)

    @worker.task("threaded")
    def speak_in_a_thread(ctx: Context) -> str:
        for word in WORDS:
            ctx.output({"word": word})
        return "done"

    @worker.task("fail")
    async def fail() -> None:
        raise TaskFailed("no voice", code="invalid_input")

    return worker


@pytest.mark.parametrize("way", ["http", "direct"])
async def test_a_job_is_run_on_one_connection(tmp_path: Path, way: str) -> None:
    """I33: the chunks come in order, all of them before the result, over both transports."""
    async with (
        scene(tmp_path) as at,
        at.working(speaker(), way),  # type: ignore[arg-type]
        AsyncClient(at.served.url) as client,
    ):
        plain = await client.run("speak", user="ada")
        assert (plain.data, plain.attempts, plain.region) == ("To keep warm.", 1, None)
        heard: list[Event] = []
        for name, wanted in (("speak", WORDS), ("threaded", [{"word": word} for word in WORDS])):
            heard.clear()
            result = await client.run(name, on_event=heard.append)
            assert isinstance(result, RunResult)
            chunks = [event.data["output"] for event in heard if event.type == "OUTPUT"]
            assert chunks == wanted
            assert {event.job_id for event in heard} == {result.job_id}


async def test_a_failure_and_a_timeout_are_exceptions(tmp_path: Path) -> None:
    async with (
        scene(tmp_path) as at,
        at.working(speaker(), "http"),
        AsyncClient(at.served.url) as client,
    ):
        for on_event in (None, lambda _: None):
            with pytest.raises(JobFailed, match="no voice") as failed:
                await client.run("fail", on_event=on_event)
            assert failed.value.reason == "INVALID_INPUT"
            with pytest.raises(JobTimeout) as late:
                await client.run("nobody", timeout=0.05, on_event=on_event)
            assert isinstance(late.value, TimeoutError)
            assert (await at.world.job(late.value.job_id)).state is State.QUEUED


async def test_closing_a_stream_cancels_its_job(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, AsyncClient(at.served.url) as client:
        for keeps in (True, False):
            stream = client.stream("nobody", on_disconnect="keep" if keeps else "cancel")
            first = await anext(stream)
            await stream.aclose()
            connections = at.served.app.app_context.inferences
            while len(connections):  # noqa: ASYNC110 - the server notices by itself
                await asyncio.sleep(0.01)
            if keeps:
                assert (await at.world.job(first.job_id)).state is State.QUEUED
            else:
                assert (await at.world.engine.wait(first.job_id)).state is State.CANCELLED


async def test_a_program_without_a_loop_runs_jobs_and_fan_outs(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, at.working(speaker(), "http"):
        await asyncio.to_thread(_use, at.served.url)


def _use(url: str) -> None:
    with Client(url) as client:
        assert client.run("speak").data == "To keep warm."
        types = [event.type for event in client.stream("speak")]
        assert types.count("OUTPUT") == 4
        assert types[-1] == "RESULT"
        job = client.submit("fail", matrix={"q": ["1", "2", "3"]}, on_cell_failure="stop")
        assert client.wait(job.job_id).status == "failed"
        bad = list(client.executions(job.job_id, status=["failed"]))
        assert {tuple(each.cell.items()) for each in bad} == {(("q", str(n)),) for n in (1, 2, 3)}
        assert client.retry_failed(job.job_id) == 3
        assert client.wait(job.job_id).status == "failed"
        client.retry(bad[0].execution_id)
        assert client.wait(job.job_id).status == "failed"
