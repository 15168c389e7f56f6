"""Runs a job on one connection (`POST /inference`) for the client SDK: the request, its events, and
what its problems mean."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import orjson

from fairlane.client.errors import ApiError, Unreachable
from fairlane.client.retry import RETRY_STATUSES, with_retries
from fairlane.client.types import Event, RunRequest, RunResult
from fairlane.errors import FairlaneError, JobCancelled, JobDead, JobFailed, JobTimeout
from fairlane.ids import token

if TYPE_CHECKING:
    from fairlane.client.connection import ApiConnection

PATH = "/inference"
ANSWER_SECONDS = 30.0
"""Seconds that the server may take for its answer, after the time of the request is over."""

ENDINGS = {each.code: each for each in (JobFailed, JobDead, JobCancelled)}


async def run(connection: ApiConnection, request: RunRequest, tries: int) -> RunResult:
    """The result of the job. A broken connection is opened again, with the same idempotency key."""
    headers = _headers(request)

    async def once() -> Any:
        try:
            return await connection.call(
                "POST",
                PATH,
                request.body(),
                headers=headers,
                patience=request.timeout + ANSWER_SECONDS,
            )
        except ApiError as error:
            raise _meaning(error) from None

    return RunResult.read(await with_retries(once, tries))


async def stream(
    connection: ApiConnection, request: RunRequest, tries: int
) -> AsyncGenerator[Event, None]:
    """The events of the job, the last of which is `RESULT`. A broken connection is opened again;
    output in between is lost."""
    headers = {**_headers(request), "Accept": "text/event-stream"}
    seen = 0
    for left in reversed(range(tries)):
        try:
            async with aclosing(_events(connection, request, headers)) as events:
                async for event in events:
                    if event.seq is not None and event.seq <= seen:
                        continue
                    seen = event.seq or seen
                    if event.type == "ERROR":
                        raise _problem(event)
                    yield event
                    if event.type == "RESULT":
                        return
        except (Unreachable, ApiError) as error:
            meant = _meaning(error) if isinstance(error, ApiError) else error
            final = isinstance(meant, ApiError) and meant.status not in RETRY_STATUSES
            if final or not left or not isinstance(meant, Unreachable | ApiError):
                raise meant from None
            await asyncio.sleep(random.uniform(0.5, 1) * (tries - left))


async def _events(
    connection: ApiConnection, request: RunRequest, headers: dict[str, str]
) -> AsyncGenerator[Event, None]:
    """The events of one connection. Raises Unreachable after the last one."""
    async with aclosing(connection.lines(PATH, headers, request.body())) as lines:
        async for line in lines:
            if line.startswith("data: "):
                yield Event.read(orjson.loads(line.removeprefix("data: ")))
    raise Unreachable(f"{connection.url} ended the stream before the result")


def _headers(request: RunRequest) -> dict[str, str]:
    headers = {"Idempotency-Key": request.idempotency_key or token()}
    if request.traceparent is not None:
        headers["traceparent"] = request.traceparent
    return headers


def _problem(event: Event) -> ApiError:
    more = dict(event.data)
    return ApiError(more.pop("status"), more.pop("code"), more.pop("detail"), more)


def _meaning(error: ApiError) -> FairlaneError:
    """The error that the end of the job means; the same error if it is about the request."""
    job = error.more.get("job_id", "")
    if error.code == JobTimeout.code:
        return JobTimeout(job, error.detail)
    if error.code not in ENDINGS or not job:
        return error
    said = error.more.get("error") or {}
    return ENDINGS[error.code](job, said.get("code", ""), said.get("message", ""))
