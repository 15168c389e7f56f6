"""Services that stream progress lines (NDJSON) before their result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from fairlane.demo.services import SimulatedExecution, SimulatedService
from fairlane.engine.output_stream import OutputChunk
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.catalog import Catalog
from fairlane.model.endpoint import Endpoint
from fairlane.model.job import Job
from fairlane.model.state import Code, State
from tests.core import core_of
from tests.dispatch.scene import Scene, called, comes_true, scene
from tests.world import catalog

soon = pytest.mark.timeout(20)
only_http = pytest.mark.embedded
"""What the stores are makes no difference here."""

LOST = ConnectionResetError("as the test wants it")


class Stream:
    """A service that sends the lines that the test gives it, and then ends its response."""

    def __init__(self, *sent: object, content_type: str = "application/x-ndjson") -> None:
        self._lines: asyncio.Queue[object] = asyncio.Queue()
        self._type = content_type
        for each in sent:
            self.send(each)

    def send(self, line: object) -> None:
        """Bytes as they are, an exception to break the connection, None to end the response;
        anything else as JSON."""
        self._lines.put_nowait(line)

    async def __call__(self, _: SimulatedExecution) -> web.Response:
        return web.Response(body=self._parts(), content_type=self._type)

    async def _parts(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            if isinstance(line, Exception):
                raise line
            yield line if isinstance(line, bytes) else orjson.dumps(line) + b"\n"


def percent(value: Any, text: str = "") -> dict[str, Any]:
    return {"progress": {"percent": value, "text": text}}


def strict(**more: Any) -> Catalog:
    return catalog(called("work", limit=1, max_attempts=3, timeout=60, **more))


@asynccontextmanager
async def streaming(path: Path, stream: Stream, **more: Any) -> AsyncIterator[Scene]:
    service = SimulatedService("work", work=stream)
    async with scene(path, service, settings=strict(), **more) as at:
        yield at


async def until_read(at: Scene, text: str) -> None:
    """Returns when the dispatcher has read the progress line with this text."""
    calls = at.dispatcher._progress._calls  # noqa: SLF001 - what it has not reported yet
    await comes_true(lambda: any(call.told and call.told.text == text for call in calls))


async def until_told(at: Scene, job: str, text: str) -> Job:
    with core_of(at.world.engine).subscriptions.watching(job) as wakeup:
        while (found := await at.world.job(job)).progress is None or found.progress.text != text:
            await wakeup.wait()
            wakeup.clear()
        return found


async def data_of(at: Scene, job: str) -> Any:
    return (await at.world.engine.view(job)).context["step_0_work"]["data"]


async def slots(at: Scene) -> int:
    return len(await core_of(at.world.engine).ledger.slots())


# --- progress --------------------------------------------------------------------------------
@soon
async def test_progress_lines_are_told_once_a_second_and_the_result_comes_after_them(
    tmp_path: Path,
) -> None:
    stream = Stream(percent(10, "loading"), percent(45, "Generating… 45%"))
    async with streaming(tmp_path, stream) as at:
        job = await at.world.submit()
        await until_read(at, "Generating… 45%")
        assert (await at.world.job(job)).progress is None, "no second has passed"
        at.world.clock.advance(1_000_000)
        told = await until_told(at, job, "Generating… 45%")
        assert told.progress is not None
        assert told.progress.percent == 45
        stream.send(percent(90, "almost"))
        await until_read(at, "almost")
        assert (await at.world.job(job)).progress == told.progress
        at.world.clock.advance(1_000_000)
        await until_told(at, job, "almost")
        stream.send({"data": {"url": "https://cdn.example/song.wav"}, "metrics": {"seconds": 3}})
        stream.send(None)
        ended = await at.ended(job)
        assert ended.state is State.COMPLETED
        assert (await at.world.engine.view(job)).context["step_0_work"] == {
            "status": "SUCCESS",
            "data": {"url": "https://cdn.example/song.wav"},
            "metrics": {"seconds": 3, "execution_time_ms": 2000},
        }


@soon
@only_http
async def test_a_flood_of_progress_is_one_report_a_second(tmp_path: Path) -> None:
    """S13: the lines are dropped as they are read; the last one counts."""
    stream = Stream(*(percent(number / 100, f"line {number}") for number in range(10_000)))
    async with streaming(tmp_path, stream, endpoint=Endpoint("", max_response=100)) as at:
        job = await at.world.submit()
        await until_read(at, "line 9999")
        assert (await at.world.job(job)).progress is None
        at.world.clock.advance(1_000_000)
        await until_told(at, job, "line 9999")
        stream.send({"data": "short"})
        stream.send(None)
        assert (await at.ended(job)).state is State.COMPLETED


@soon
@only_http
async def test_progress_is_bounded_and_what_is_no_progress_is_ignored(tmp_path: Path) -> None:
    stream = Stream(
        percent(20, "the last one that counts"),
        b"\n",
        b"  \r\n",
        {"heartbeat": 1},
        {"progress": None},
        percent("45", "text is no number"),
        percent(True, "nor is a truth value"),
        percent(None, "nor is nothing"),
        [1, 2],
    )
    async with streaming(tmp_path, stream) as at:
        job = await at.world.submit()
        await until_read(at, "the last one that counts")
        stream.send(percent(140, "x" * 1000))
        await until_read(at, "x" * 200)
        at.world.clock.advance(1_000_000)
        found = await until_told(at, job, "x" * 200)
        assert found.progress is not None
        assert found.progress.percent == 100
        stream.send({"data": None})
        stream.send(None)
        assert (await at.ended(job)).state is State.COMPLETED


@only_http
@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({}, "application/json, application/x-ndjson, */*;q=0.1"),
        ({"accept": "audio/wav"}, "audio/wav"),
    ],
)
async def test_a_service_is_told_that_it_may_stream(
    tmp_path: Path, headers: dict[str, str], sent: str
) -> None:
    async with scene(tmp_path, endpoint=Endpoint("", headers=headers)) as at:
        await at.run()
        received = at.service.calls[0].headers.items()
        assert [value for name, value in received if name.lower() == "accept"] == [sent]


# --- how a stream ends -----------------------------------------------------------------------
@only_http
@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/jsonl"])
async def test_the_first_result_counts_and_its_line_needs_no_end(
    tmp_path: Path, content_type: str
) -> None:
    stream = Stream({"data": 1}, {"data": 2}, b'{"data": 3}', None, content_type=content_type)
    async with streaming(tmp_path, stream) as at:
        job = await at.run()
        assert await data_of(at, job.id) == 1
        stream.send(b'{"data": 3}')
        stream.send(None)
        job = await at.run()
        assert await data_of(at, job.id) == 3


@only_http
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ({"message": "no such voice", "code": "invalid_input"}, "INVALID_INPUT", "no such voice"),
        ({"message": "too loud", "code": "QUALITY"}, "QUALITY", "too loud"),
        ({"message": "no", "retriable": False}, "SERVICE_ERROR", "work reported an error: no"),
        ({"message": 7, "retriable": False, "code": 7}, "SERVICE_ERROR", "reported an error"),
    ],
)
async def test_an_error_line_means_what_the_error_of_a_worker_means(
    tmp_path: Path, error: dict[str, Any], code: str, said: str
) -> None:
    stream = Stream(percent(1), {"error": error, "data": None}, None)
    async with streaming(tmp_path, stream) as at:
        job = await at.run()
        assert job.error is not None
        assert (job.state, job.error.code) == (State.FAILED, code)
        assert said in job.error.message
        assert await slots(at) == 0


@only_http
@pytest.mark.parametrize("error", [{"message": "out of memory"}, "out of memory"])
async def test_an_error_line_is_retried_unless_it_says_otherwise(
    tmp_path: Path, error: object
) -> None:
    stream = Stream({"error": error}, None)
    async with streaming(tmp_path, stream) as at:
        job = await at.until_queued(await at.world.submit())
        (attempt,) = await at.world.engine.attempts(job.id)
        assert attempt.fault is Fault.TRANSIENT
        assert attempt.message == "work reported an error: out of memory"


@only_http
async def test_a_reported_timeout_is_stored_like_that_of_a_worker(tmp_path: Path) -> None:
    stream = Stream({"error": {"message": "too slow", "code": "timeout"}}, None)
    async with streaming(tmp_path, stream) as at:
        job = await at.until_queued(await at.world.submit())
        (attempt,) = await at.world.engine.attempts(job.id)
        assert (attempt.fault, attempt.outcome) == (Fault.TIMEOUT, Outcome.TIMEOUT)


@only_http
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"Traceback: out of memory\n", Code.SERVICE_ERROR),
        (b'{"data": NaN}\n', Code.SERVICE_ERROR),
        (b'{"data": 123456789012345678901234567890}\n', Code.SERVICE_ERROR),
        (b'{"data": "' + b"x" * 200_000 + b'"}\n', Code.RESULT_TOO_LARGE),
        (b"x" * 200_000, Code.RESULT_TOO_LARGE),
    ],
)
async def test_a_line_that_cannot_be_read_fails_the_job_when_the_response_has_ended(
    tmp_path: Path, line: bytes, code: Code
) -> None:
    """S13: a line has at most as many bytes as a whole response."""
    stream = Stream(percent(1), line, {"data": "too late"})
    async with streaming(tmp_path, stream, endpoint=Endpoint("", max_response=100_000)) as at:
        job = await at.world.submit()
        calls = at.dispatcher._progress._calls  # noqa: SLF001
        if line.endswith(b"\n"):
            await comes_true(lambda: any(call.result for call in calls))
            assert (await at.world.job(job)).state is State.RUNNING
        stream.send(None)
        ended = await at.ended(job)
        assert ended.error is not None
        assert ended.error.code is code
        assert await slots(at) == 0


@only_http
async def test_a_stream_that_ends_without_a_result_is_tried_again_and_frees_its_slot(
    tmp_path: Path,
) -> None:
    """I8: the response has ended, so the call has."""
    stream = Stream(percent(99), None)
    async with streaming(tmp_path, stream) as at:
        job = await at.until_queued(await at.world.submit())
        (attempt,) = await at.world.engine.attempts(job.id)
        assert attempt.fault is Fault.TRANSIENT
        assert await slots(at) == 0


@soon
async def test_a_connection_lost_midway_keeps_the_slot_until_the_call_must_be_over(
    tmp_path: Path,
) -> None:
    """I8: the service may go on behind a proxy that cut the connection."""
    stream = Stream(percent(50, "half"))
    async with streaming(tmp_path, stream) as at:
        job = await at.world.submit()
        await until_read(at, "half")
        at.world.clock.advance(1_000_000)
        await until_told(at, job, "half")
        stream.send(LOST)
        again = await at.until_queued(job)
        assert again.progress is None
        (attempt,) = await at.world.engine.attempts(job)
        assert attempt.fault is Fault.UNAVAILABLE
        assert await slots(at) == 1
        await at.world.pass_time(60)
        stream.send({"data": "again"})
        stream.send(None)
        assert (await at.ended(job)).state is State.COMPLETED


@only_http
async def test_a_response_that_does_not_say_where_it_ends_may_have_been_cut(
    tmp_path: Path,
) -> None:
    """I8: without a length, the end of a response and a killed service look the same."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"
        writer.write(head + b'{"progress": {"percent": 1}}\n{"data": "cut he')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, scene(tmp_path, settings=strict()) as at:
        at.call_at(url)
        job = await at.until_queued(await at.world.submit())
        (attempt,) = await at.world.engine.attempts(job.id)
        assert attempt.fault is Fault.UNAVAILABLE
        assert await slots(at) == 1


@soon
async def test_a_result_counts_although_the_connection_breaks_after_it(tmp_path: Path) -> None:
    """I8: the call may still run, so its slot stays taken until its deadline."""
    async with streaming(tmp_path, Stream({"data": "done"}, LOST)) as at:
        job = await at.run()
        assert (job.state, await data_of(at, job.id)) == (State.COMPLETED, "done")
        assert await slots(at) == 1
        await at.world.pass_time(60)
        assert await slots(at) == 0


@soon
@only_http
async def test_a_result_that_cannot_be_stored_keeps_the_slot_of_a_broken_call(
    tmp_path: Path,
) -> None:
    """I8: as any other end of such a call."""
    async with streaming(tmp_path, Stream({"data": "\0"}, LOST)) as at:
        job = await at.run()
        assert job.error is not None
        assert (job.error.code, await slots(at)) == (Code.SERVICE_ERROR, 1)


@soon
async def test_a_result_counts_although_the_response_never_ends(tmp_path: Path) -> None:
    """I8: the slot stays taken until then: the service decides when its call is over."""
    async with streaming(tmp_path, Stream(percent(1), {"data": "done"})) as at:
        job = await at.world.submit()
        calls = at.dispatcher._progress._calls  # noqa: SLF001
        await comes_true(lambda: any(call.result for call in calls))
        assert (await at.world.job(job)).state is State.RUNNING
        assert await slots(at) == 1
        at.world.clock.advance(61_000_000)
        assert (await at.ended(job)).state is State.COMPLETED
        assert await data_of(at, job) == "done"


@soon
async def test_progress_does_not_give_a_call_more_time(tmp_path: Path) -> None:
    stream = Stream(percent(50, "half"))
    async with streaming(tmp_path, stream) as at:
        job = await at.world.submit()
        await until_read(at, "half")
        at.world.clock.advance(61_000_000)
        again = await at.until_queued(job)
        assert again.progress is None
        (attempt,) = await at.world.engine.attempts(job)
        assert (attempt.fault, attempt.outcome) == (Fault.TIMEOUT, Outcome.TIMEOUT)


@soon
async def test_a_cancel_cuts_a_stream_at_once(tmp_path: Path) -> None:
    async with streaming(tmp_path, Stream(percent(50, "half"))) as at:
        job = await at.world.submit()
        await until_read(at, "half")
        await at.world.engine.cancel(job)
        await comes_true(lambda: at.dispatcher.running == 0)
        assert (await at.world.job(job)).state is State.CANCELLED
        assert await slots(at) == 1


@only_http
async def test_a_drained_dispatcher_keeps_a_result_that_it_has_read(tmp_path: Path) -> None:
    """I8: and the slot of the call, which may still run."""
    async with streaming(tmp_path, Stream({"data": "done"})) as at:
        job = await at.world.submit()
        calls = at.dispatcher._progress._calls  # noqa: SLF001
        await comes_true(lambda: any(call.result for call in calls))
        await at.dispatcher.drain(0)
        assert (await at.world.job(job)).state is State.COMPLETED
        assert await slots(at) == 1


# --- output ----------------------------------------------------------------------------------
@soon
async def test_output_lines_reach_the_listener_before_the_result(tmp_path: Path) -> None:
    """I33: a line may carry progress, too; output never changes what the job returns."""
    stream = Stream({"output": "Hel"}, {"output": "lo", **percent(50, "half")})
    async with streaming(tmp_path, stream) as at:
        job = await at.world.submit()
        ready = asyncio.Event()
        with at.world.engine.outputs(job, ready) as listener:
            heard: list[OutputChunk] = []
            while len(heard) < 2:
                await ready.wait()
                ready.clear()
                heard += listener.take()
            assert [(each.number, each.output) for each in heard] == [(0, '"Hel"'), (1, '"lo"')]
            await until_read(at, "half")
            for line in ({"output": {"x": "y" * 70_000}}, {"output": "!"}, {"data": {"ok": 1}}):
                stream.send(line)
            stream.send(None)
            assert (await at.ended(job)).state is State.COMPLETED
            (last,) = listener.take()
            assert (last.output, last.dropped) == ('"!"', 1), "a chunk of more than 64 KiB is lost"
        assert await data_of(at, job) == {"ok": 1}


@soon
@only_http
async def test_a_listener_that_does_not_read_loses_chunks_and_nothing_waits(
    tmp_path: Path,
) -> None:
    """S13: a mebibyte is kept for it, whatever a service streams."""
    big = "x" * 50_000
    stream = Stream(*({"output": big} for _ in range(60)), {"data": 1}, None)
    async with streaming(tmp_path, stream) as at:
        with at.world.engine.outputs(await at.world.submit(), asyncio.Event()) as listener:
            (job,) = [job.id for job in (await at.world.engine.list_jobs()).jobs]
            assert (await at.ended(job)).state is State.COMPLETED
            kept = listener.take()
            assert 10 < len(kept) <= 20
            assert [each.number for each in kept] == list(range(len(kept)))
