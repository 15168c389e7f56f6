"""The client SDK: submit, wait, list, cancel; sync and async. A client imports the HTTP library
when it is made: a program that only imports the class starts fast."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlencode

import orjson

from fairlane.client.errors import ApiError, Unreachable
from fairlane.client.retry import MAX_TRIES, RETRY_STATUSES, with_retries
from fairlane.client.run import run, stream
from fairlane.client.types import (
    Event,
    Execution,
    Job,
    JobPage,
    JobRequest,
    RunRequest,
    RunResult,
    Submitted,
)
from fairlane.ids import token

if TYPE_CHECKING:
    from fairlane.responses import BatchResultResponse, InferenceResponse

T = TypeVar("T")

MAX_BATCH_JOBS = 1_000
MAX_PAGE = 200

SSE = {"Accept": "text/event-stream"}


class AsyncClient:
    """`async with AsyncClient("http://127.0.0.1:8000", key)`. `FAIRLANE_URL` and `FAIRLANE_KEY` are
    the defaults of the arguments. A request without a response is repeated. A submit carries its
    own idempotency key, so a repeated one makes one job."""

    def __init__(
        self, url: str | None = None, key: str | None = None, *, tries: int = MAX_TRIES
    ) -> None:
        from fairlane.client.connection import ApiConnection

        self._connection = ApiConnection(url, key)
        self._tries = tries

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    async def submit(self, name: str | JobRequest, input: Any = None, **more: Any) -> Submitted:  # noqa: A002 - as jobs call it
        """Submits a job. It is stored durably when this returns. `more` takes the fields of
        `JobRequest`."""
        request = name if isinstance(name, JobRequest) else JobRequest(name, input, **more)
        headers = {"Idempotency-Key": request.idempotency_key or token()}
        if request.traceparent is not None:
            headers["traceparent"] = request.traceparent
        return Submitted.read(await self._call("POST", "/api/v1/jobs", request.body(), headers))

    async def submit_many(self, requests: Sequence[JobRequest]) -> list[Submitted | ApiError]:
        """The outcome of each request, in order. The client makes their idempotency keys."""
        found: list[Submitted | ApiError] = []
        for start in range(0, len(requests), MAX_BATCH_JOBS):
            sent = {"jobs": [each.body() for each in requests[start : start + MAX_BATCH_JOBS]]}
            headers = {"Idempotency-Key": token()}
            answer = await self._call("POST", "/api/v1/jobs:batch", sent, headers)
            found += [_outcome(each) for each in answer["results"]]
        return found

    async def run(
        self,
        name: str | RunRequest,
        input: Any = None,  # noqa: A002 - as jobs call it
        *,
        on_event: Callable[[Event], None] | None = None,
        **more: Any,
    ) -> RunResult:
        """Runs a job and waits for its result on one connection. `more` takes the fields of
        `RunRequest`. `on_event` is called with each event: `POSITION`, `PROGRESS`, `OUTPUT` and
        the events of the job. Raises JobFailed, JobDead or JobCancelled if there is no result, and
        JobTimeout if the job has not ended in time; then it is kept."""
        request = name if isinstance(name, RunRequest) else RunRequest(name, input, **more)
        if on_event is None:
            return await run(self._connection, request, self._tries)
        async with aclosing(self.stream(request)) as events:
            async for event in events:
                if event.type == "RESULT":
                    return RunResult.read(cast("InferenceResponse", event.data))
                on_event(event)
        raise Unreachable("the stream ended before the result")

    def stream(
        self,
        name: str | RunRequest,
        input: Any = None,  # noqa: A002 - as jobs call it
        **more: Any,
    ) -> AsyncGenerator[Event, None]:
        """Like `run`, as an iterator of events. The last one is `RESULT`. Closing the iterator
        closes the connection, which cancels the job unless `on_disconnect` is "keep"."""
        request = name if isinstance(name, RunRequest) else RunRequest(name, input, **more)
        return stream(self._connection, request, self._tries)

    async def get(self, job_id: str) -> Job:
        return Job.read(await self._call("GET", f"/api/v1/jobs/{job_id}"))

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job when it has ended. Raises TimeoutError after `timeout` seconds."""
        async with asyncio.timeout(timeout):
            async for _ in self.events(job_id):
                pass
            return await self.get(job_id)

    async def result(self, job: str | Submitted, timeout: float | None = None) -> Any:
        """The output of the job's last step, when it has ended. Raises JobFailed, JobDead or
        JobCancelled if there is no result, and TimeoutError after `timeout` seconds."""
        job_id = job if isinstance(job, str) else job.job_id
        return (await self.wait(job_id, timeout)).result_or_raise()

    async def list(
        self,
        *,
        status: str | Sequence[str] = (),
        user: str | None = None,
        name: str | None = None,
        tag: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> JobPage:
        """Jobs that match, newest first, up to 200 per page. `cursor` is the `next` of the page
        before."""
        words = [status] if isinstance(status, str) else status
        asked = [
            *(("status", each) for each in words),
            ("user_id", user),
            ("feature_name", name),
            ("tag", tag),
            ("limit", str(limit)),
            ("cursor", cursor),
        ]
        query = urlencode([(field, value) for field, value in asked if value is not None])
        return JobPage.read(await self._call("GET", f"/api/v1/jobs?{query}"))

    async def events(self, job_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """The job's events after this number, past and new, without a gap, until the job ends. A
        broken connection is reopened."""
        while True:
            try:
                async for event in self._stream(job_id, after):
                    after = event.seq or after
                    yield event
            except (Unreachable, ApiError) as error:
                if isinstance(error, ApiError) and error.status not in RETRY_STATUSES:
                    raise
                await asyncio.sleep(random.uniform(0.5, 1))
            if (await self.get(job_id)).ended:
                for each in await self._call("GET", f"/api/v1/jobs/{job_id}/events?after={after}"):
                    yield Event.read(each)
                return

    async def _stream(self, job_id: str, after: int) -> AsyncIterator[Event]:
        headers = {**SSE, "Last-Event-ID": str(after)}
        async for line in self._connection.lines(f"/api/v1/jobs/{job_id}/events", headers):
            if line.startswith("data: "):
                yield Event.read(orjson.loads(line.removeprefix("data: ")))

    async def cancel(self, job_id: str) -> None:
        """Cancels the job at once; it cannot be resumed. ApiError 409 if it has ended already."""
        await self._move("DELETE", f"/api/v1/jobs/{job_id}")

    async def resume(self, job_id: str) -> None:
        """Resumes a failed job from the failed step. Attempts already used still count."""
        await self._move("POST", f"/api/v1/jobs/{job_id}/resume")

    async def replay(self, job_id: str) -> None:
        """Replays a failed or dead job from the failed step, with all attempts again. Needs an
        admin key."""
        await self._move("POST", f"/api/v1/jobs/{job_id}/replay")

    async def executions(
        self, job_id: str, *, status: str | Sequence[str] = ()
    ) -> AsyncGenerator[Execution, None]:
        """The executions of a fan-out with their results so far, newest first, page by page."""
        words, cursor = [status] if isinstance(status, str) else status, None
        while True:
            asked = [*(("status", each) for each in words), ("limit", str(MAX_PAGE))]
            query = urlencode([*asked, *([("cursor", cursor)] if cursor else [])])
            page = await self._call("GET", f"/api/v1/jobs/{job_id}/executions?{query}")
            for each in page["executions"]:
                yield Execution.read(each)
            cursor = page["next"]
            if cursor is None:
                return

    async def retry(self, execution_id: str) -> None:
        """Runs a failed execution of a fan-out again, with all attempts. A fan-out that has ended
        runs again."""
        await self._move("POST", f"/api/v1/executions/{execution_id}/retry-question")

    async def retry_failed(self, job_id: str) -> int:
        """Runs all failed executions of a fan-out again. Returns how many."""
        headers = {"Idempotency-Key": token()}
        path = f"/api/v1/jobs/{job_id}/retry-failed"
        return int((await self._call("POST", path, headers=headers))["count"])

    async def _move(self, method: str, path: str) -> None:
        await self._call(method, path, headers={"Idempotency-Key": token()})

    async def _call(
        self, method: str, path: str, sent: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        return await with_retries(
            lambda: self._connection.call(method, path, sent, headers=headers), self._tries
        )


def _outcome(sent: BatchResultResponse) -> Submitted | ApiError:
    if "job" in sent:
        return Submitted.read(sent["job"])
    error = dict(sent["error"])
    return ApiError(sent["status"], error.pop("code"), error.pop("detail"), error)


class Client:
    """The same for programs without an event loop: `with Client(…) as client`. It runs its own loop
    in a thread. Any thread may use it."""

    def __init__(
        self, url: str | None = None, key: str | None = None, *, tries: int = MAX_TRIES
    ) -> None:
        from fairlane.client.portal import Portal

        self._client = AsyncClient(url, key, tries=tries)
        self._portal = Portal()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._portal.closed:
            self._portal.run(self._client.close)
            self._portal.close()

    def submit(self, name: str | JobRequest, input: Any = None, **more: Any) -> Submitted:  # noqa: A002 - as jobs call it
        return self._portal.run(self._client.submit, name, input, **more)

    def submit_many(self, requests: Sequence[JobRequest]) -> list[Submitted | ApiError]:
        return self._portal.run(self._client.submit_many, requests)

    def run(
        self,
        name: str | RunRequest,
        input: Any = None,  # noqa: A002 - as jobs call it
        *,
        on_event: Callable[[Event], None] | None = None,
        **more: Any,
    ) -> RunResult:
        return self._portal.run(self._client.run, name, input, on_event=on_event, **more)

    def stream(
        self,
        name: str | RunRequest,
        input: Any = None,  # noqa: A002 - as jobs call it
        **more: Any,
    ) -> Iterator[Event]:
        yield from self._each(self._client.stream(name, input, **more))

    def get(self, job_id: str) -> Job:
        return self._portal.run(self._client.get, job_id)

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        return self._portal.run(self._client.wait, job_id, timeout)

    def result(self, job: str | Submitted, timeout: float | None = None) -> Any:
        return self._portal.run(self._client.result, job, timeout)

    def list(self, **wanted: Any) -> JobPage:
        """Takes the filters of `AsyncClient.list`."""
        return self._portal.run(self._client.list, **wanted)

    def events(self, job_id: str, after: int = 0) -> Iterator[Event]:
        yield from self._each(self._client.events(job_id, after))

    def _each(self, found: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while True:
                try:
                    yield self._portal.run(found.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            if not self._portal.closed:
                self._portal.run(found.aclose)

    def executions(self, job_id: str, *, status: str | Sequence[str] = ()) -> Iterator[Execution]:
        yield from self._each(self._client.executions(job_id, status=status))

    def retry(self, execution_id: str) -> None:
        self._portal.run(self._client.retry, execution_id)

    def retry_failed(self, job_id: str) -> int:
        return self._portal.run(self._client.retry_failed, job_id)

    def cancel(self, job_id: str) -> None:
        self._portal.run(self._client.cancel, job_id)

    def resume(self, job_id: str) -> None:
        self._portal.run(self._client.resume, job_id)

    def replay(self, job_id: str) -> None:
        self._portal.run(self._client.replay, job_id)
