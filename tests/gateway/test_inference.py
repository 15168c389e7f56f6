"""Inferences from end to end: real processes, a service that streams, clients that hold keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import orjson
import pytest
from aiohttp import web

from fairlane.demo.services import SimulatedExecution, SimulatedService
from tests.gateway.site import LONG_ENOUGH, Caller, Site

ASK = {"service": "llm", "input_data": {"prompt": "hi"}, "on_disconnect": "cancel"}
SSE = {"Accept": "text/event-stream"}


class Speaker:
    """A service that writes word after word, as the test lets it."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[str | None] = asyncio.Queue()

    async def __call__(self, _: SimulatedExecution) -> web.Response:
        return web.Response(body=self._lines(), content_type="application/x-ndjson")

    async def _lines(self) -> AsyncIterator[bytes]:
        said = []
        while (word := await self.words.get()) is not None:
            said.append(word)
            yield orjson.dumps({"output": word}) + b"\n"
        yield orjson.dumps({"data": {"text": "".join(said)}}) + b"\n"


async def stream(caller: Caller, **more: Any) -> AsyncGenerator[dict[str, Any]]:
    async with caller.http.stream("POST", "/inference", json={**ASK, **more}, headers=SSE) as got:
        assert got.status_code == 200
        async for line in got.aiter_lines():
            if line.startswith("data: "):
                yield orjson.loads(line.removeprefix("data: "))


async def next_of(events: AsyncIterator[dict[str, Any]], kind: str) -> dict[str, Any]:
    async with asyncio.timeout(LONG_ENOUGH):
        async for event in events:
            if event["type"] == kind:
                return event
    raise AssertionError(f"the stream ended without {kind}")


@pytest.mark.long
async def test_output_of_any_process_reaches_the_client_of_another(site: Site) -> None:
    """I33: each of several jobs, whichever dispatcher runs it; live, and before the result."""
    speaker = Speaker()
    await site.add(SimulatedService("llm", 1, work=speaker))
    api = await site.serve()
    if site.clustered:
        await site.dispatch()
        await site.dispatch()
    caller = await site.caller(api)
    for _ in range(6):
        async with aclosing(stream(caller)) as events:
            await next_of(events, "STEP_START")
            speaker.words.put_nowait("To")
            assert (await next_of(events, "OUTPUT"))["data"]["output"] == "To"
            speaker.words.put_nowait(" keep")
            speaker.words.put_nowait(None)
            assert (await next_of(events, "OUTPUT"))["data"]["output"] == " keep"
            assert (await next_of(events, "RESULT"))["data"]["data"] == {"text": "To keep"}


@pytest.mark.long
async def test_a_job_outlives_the_process_that_held_its_connection(site: Site) -> None:
    """I1: killed while the job waits; the same request elsewhere waits for the same job."""
    speaker = Speaker()
    await site.add(SimulatedService("llm", 1, work=speaker), paused=True)
    api = await site.serve()
    caller = await site.caller(api)
    key, job = {"Idempotency-Key": "once", **SSE}, ""
    with pytest.raises(Exception, match=r".*"):  # noqa: PT012 - however the cut looks
        async with caller.http.stream("POST", "/inference", json=ASK, headers=key) as got:
            async for line in got.aiter_lines():
                if line.startswith("data: "):
                    job = orjson.loads(line.removeprefix("data: "))["job_id"]
                    await api.kill()
    again = await site.serve()
    caller = await site.same(caller, again)
    assert (await caller.job(job))["status"] == "queued"
    await (await site.admin(again)).change("llm", paused=False)
    speaker.words.put_nowait("still")
    speaker.words.put_nowait(None)
    answer = await caller.http.post("/inference", json=ASK, headers={"Idempotency-Key": "once"})
    assert (answer.status_code, answer.json()["job_id"]) == (200, job)
    assert answer.json()["data"] == {"text": "still"}


@pytest.mark.long
async def test_a_client_that_leaves_ends_the_call_of_another_process(site: Site) -> None:
    """I21: the job is cancelled, its call is cut off, and the slot is free for the next."""
    speaker = Speaker()
    service = await site.add(SimulatedService("llm", 1, work=speaker), overrun="fast")
    api = await site.serve()
    if site.clustered:
        await site.dispatch()
    caller = await site.caller(api)
    async with aclosing(stream(caller)) as events:
        job = (await next_of(events, "STEP_START"))["job_id"]
        await service.until(lambda it: len(it.calls) == 1)  # the step starts before its call
    assert (await caller.ended(job))["status"] == "cancelled"
    async with aclosing(stream(caller)) as events:
        second = (await next_of(events, "STEP_START"))["job_id"]
        await service.until(lambda it: len(it.calls) == 2)
    assert [call.job for call in service.calls] == [job, second]
