"""The inference route: submits a job and waits for its result on the same connection, as JSON or as
server-sent events with streamed output. Decision 27 has every interleaving."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import NamedTuple

import orjson
from starlette.types import Receive, Scope, Send

from fairlane.api.auth.roles import Identity
from fairlane.api.context import AppContext
from fairlane.api.event_listeners import ListenerPause, News
from fairlane.api.http.problem_details import (
    ProblemDetails,
    problem_body,
    problem_of,
    unauthorized,
)
from fairlane.api.inference_connections import client_gone
from fairlane.api.routes.job_result import WITHOUT_RESULT
from fairlane.api.routes.server_sent_events import (
    KEEP_ALIVE_SECONDS,
    NO_BUFFERING,
    SSE,
    message,
)
from fairlane.api.routes.submit import taken_request
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.inference_requests import InferenceRequest
from fairlane.api.schemas.serializers import StreamedResponse, TypedResponse
from fairlane.engine import Engine
from fairlane.engine.output_stream import OutputChunk
from fairlane.ledger.messages import Replayed
from fairlane.model.event import Event
from fairlane.model.job import Job
from fairlane.model.state import Code, State
from fairlane.responses import InferenceResponse

log = logging.getLogger("fairlane.api")
routes = Routes("inference")

PENDING_NEWS = 16
"""Events that wait for a slow client, before the stream of events waits for it."""


class Inference(NamedTuple):
    """A request that waits for its job. `until` is the time of the event loop at which the wait is
    over."""

    app_context: AppContext
    identity: Identity
    job: str
    until: float
    seconds: float
    cancels: bool
    headers: dict[str, str]

    @property
    def engine(self) -> Engine:
        return self.app_context.engine


@routes.hot(
    "POST",
    "/inference",
    "client",
    takes=InferenceRequest,
    example=examples.INFERENCE,
    texts={SSE: examples.INFERENCE_STREAM},
    status=200,
    problems=(404, 409, 410, 502, 504),
)
async def run_inference(
    scope: Scope, receive: Receive
) -> TypedResponse[InferenceResponse] | StreamedResponse:
    """Submit a job and wait for its result on this connection. With `Accept: text/event-stream` the
    position, the ETA, progress, streamed output and the result follow as server-sent events. After
    `timeout_seconds` the response is 504, and the job is kept. With an `Idempotency-Key` a repeated
    request waits for the same job."""
    loop = asyncio.get_running_loop()
    request, _, outcome = await taken_request(scope, receive, InferenceRequest)
    headers = {"Location": f"/api/v1/jobs/{outcome.job}"}
    if isinstance(outcome, Replayed):
        headers["Idempotent-Replayed"] = "true"
    inference = Inference(
        scope["app_context"],
        scope["identity"],
        outcome.job,
        loop.time() + request.timeout_seconds,
        request.timeout_seconds,
        request.on_disconnect == "cancel",
        headers,
    )
    if _accepts_stream(scope):
        return InferenceStream(inference)
    gone = asyncio.create_task(client_gone(receive))
    try:
        answer = await _result(inference, await _ended(inference, gone))
    except Exception as error:
        raise _problem(inference, error) from error
    finally:
        gone.cancel()
    return serializers.answer(answer, headers=headers)


def _accepts_stream(scope: Scope) -> bool:
    return any(name == b"accept" and SSE.encode() in value for name, value in scope["headers"])


# --- JSON ----------------------------------------------------------------------------------------
async def _ended(inference: Inference, gone: asyncio.Task[None]) -> Job:
    """Waits until the job has ended. Raises if that takes too long, or the client has gone."""
    connections = inference.app_context.inferences
    loop = asyncio.get_running_loop()
    watched = False

    async def pause(wakeup: asyncio.Event) -> None:
        nonlocal watched
        if not watched:
            watched = True
            gone.add_done_callback(lambda _: wakeup.set())
        timer = loop.call_at(inference.until, wakeup.set)
        try:
            await wakeup.wait()
        finally:
            timer.cancel()

    with connections.waiting(inference.job):
        async with aclosing(inference.engine.follow(inference.job, pause)) as looks:
            async for job in looks:
                if job is None or not job.live:
                    return job or await inference.engine.get(inference.job)
                if gone.done() or connections.closing or loop.time() >= inference.until:
                    break
    raise _unfinished(inference, left=gone.done())


def _unfinished(inference: Inference, *, left: bool) -> ProblemDetails:
    """The problem of a request whose job goes on. If the client has left, it reads none, and the
    job may be cancelled."""
    more = {"job_id": inference.job}
    if left:
        if inference.cancels:
            inference.app_context.inferences.client_left(inference.job, inference.identity.tenant)
        return ProblemDetails(400, "disconnected", "the client has gone away", more=more)
    if inference.app_context.inferences.closing:
        return ProblemDetails(
            503,
            "shutting_down",
            "this process is leaving, and the job is kept; send the request again with the same "
            "Idempotency-Key, or follow the job",
            headers={**inference.headers, "Retry-After": "1"},
            more=more,
        )
    if asyncio.get_running_loop().time() < inference.until:
        return unauthorized("the API key is no longer valid")
    return ProblemDetails(
        504,
        "inference_timeout",
        f"the job has not ended after {inference.seconds:g} s and is kept; follow it with "
        f"GET /api/v1/jobs/{inference.job}",
        headers=inference.headers,
        more=more,
    )


def _problem(inference: Inference, error: Exception) -> ProblemDetails:
    """The problem of a request that an error has ended, with its job: that one is kept."""
    problem = problem_of(error, inference.engine.clock.now())
    if problem is error:
        return problem
    if problem.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("the request for job %s failed", inference.job, exc_info=error)
    return ProblemDetails(
        problem.status_code,
        problem.code,
        problem.detail,
        headers={**inference.headers, **(problem.headers or {})},
        more={**problem.more, "job_id": inference.job},
    )


async def _result(inference: Inference, job: Job) -> InferenceResponse:
    """The result of the ended job. Raises the problem of a job without one."""
    if job.state is not State.COMPLETED:
        raise _failed(inference, job)
    _, context = await inference.engine.payload(job.id)
    return serializers.inference(job, context)


def _failed(inference: Inference, job: Job) -> ProblemDetails:
    kind = WITHOUT_RESULT[job.state]
    code, said = (job.error.code, job.error.message) if job.error else ("", "")
    status = 409 if job.state is State.CANCELLED else 422 if code == Code.INVALID_INPUT else 502
    more = {"job_id": job.id, "state": job.state, "error": serializers.error(job.error)}
    message = str(kind(job.id, code, said))
    return ProblemDetails(status, kind.code, message, headers=inference.headers, more=more)


# --- server-sent events --------------------------------------------------------------------------
class InferenceStream(StreamedResponse):
    """Sends what happens to the job until it has ended, time is over, or the client has gone."""

    def __init__(self, inference: Inference) -> None:
        super().__init__(None, 200, {**NO_BUFFERING, **inference.headers}, SSE)
        del self.headers["content-length"]
        self._inference = inference

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.create_task(client_gone(receive))
        try:
            async with aclosing(self._parts(scope, gone)) as parts:
                async for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _parts(self, scope: Scope, gone: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
        inference, ready = self._inference, asyncio.Event()
        loop = asyncio.get_running_loop()
        gone.add_done_callback(lambda _: ready.set())
        timer = loop.call_at(inference.until, ready.set)
        news: asyncio.Queue[News] = asyncio.Queue(PENDING_NEWS)
        try:
            with (
                inference.app_context.inferences.waiting(inference.job),
                inference.engine.outputs(inference.job, ready) as output,
            ):
                pump = asyncio.create_task(self._pump(news, ready))
                try:
                    while True:
                        over = pump.done()
                        if over:  # the last chunks come before the last events
                            for chunk in output.take():
                                yield _output(inference.job, chunk)
                        while not news.empty():
                            yield _event(inference.job, news.get_nowait())
                        for chunk in output.take():
                            yield _output(inference.job, chunk)
                        if over or gone.done() or loop.time() >= inference.until:
                            break
                        await ready.wait()
                        ready.clear()
                finally:
                    pump.cancel()
                    (ended,) = await asyncio.gather(pump, return_exceptions=True)
            broken = ended if isinstance(ended, Exception) else None
            yield await self._last(scope, left=gone.done(), broken=broken)
        finally:
            timer.cancel()

    async def _pump(self, news: asyncio.Queue[News], ready: asyncio.Event) -> None:
        """Reads the event stream until the job has ended, or this process is leaving."""
        inference = self._inference
        stream = inference.app_context.event_stream.stream(inference.job, 0, KEEP_ALIVE_SECONDS)
        try:
            async with aclosing(stream):
                async for each in stream:
                    if isinstance(each, ListenerPause):
                        still = await inference.app_context.key_cache.still(inference.identity)
                        if not still:
                            return
                    await news.put(each)
                    ready.set()
        finally:
            ready.set()

    async def _last(self, scope: Scope, *, left: bool, broken: Exception | None) -> bytes:
        """The last event: the result, or the problem that a JSON response would have been. `broken`
        is the error that has ended the event stream."""
        inference = self._inference
        try:
            answer = await self._answer(left=left, broken=broken)
            return _sse("RESULT", inference.job, answer)
        except Exception as error:  # noqa: BLE001 - the stream says it, as JSON would
            problem = _problem(inference, error)
            body = problem_body(problem, scope["path"], scope["request_id"])
            return _sse("ERROR", inference.job, body)

    async def _answer(self, *, left: bool, broken: Exception | None) -> InferenceResponse:
        inference = self._inference
        if left:
            raise _unfinished(inference, left=True)
        job = await inference.engine.get(inference.job)
        if job.live:
            raise broken or _unfinished(inference, left=False)
        return await _result(inference, job)


def _event(job: str, news: News) -> bytes:
    if isinstance(news, ListenerPause):
        return b": still here\n\n"
    update = message(job, news)
    number = b"id: %d\n" % news.seq if isinstance(news, Event) else b""
    return number + b"event: %s\ndata: %s\n\n" % (update["type"].encode(), orjson.dumps(update))


def _output(job: str, chunk: OutputChunk) -> bytes:
    data = {**chunk._asdict(), "output": orjson.Fragment(chunk.output)}
    return _sse("OUTPUT", job, data)


def _sse(kind: str, job: str, data: object) -> bytes:
    body = orjson.dumps({"type": kind, "job_id": job, "data": data})
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)
