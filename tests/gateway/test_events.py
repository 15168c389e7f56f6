"""Events from end to end: whoever listens wherever hears all of them once, in order (I25)."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from fairlane.demo.services import SimulatedExecution
from tests.gateway.site import Caller, Site

LISTENERS, JOBS = 50, 32


@pytest.mark.long
async def test_no_listener_misses_or_repeats_an_event(site: Site) -> None:
    """They are cut and come back, each time at the other door, while jobs are retried and done."""
    chat = site.services["fast_chat_llm"]
    chat.work = fail_first
    site.set("services.fast_chat_llm", backoff=[0.1], retry_on=[500])
    api = await site.serve()
    first = await site.caller(api)
    doors = [first, await site.same(first, await site.other_door(api))]
    if site.clustered:
        await site.dispatch()
    jobs = [(await first.submit("text_only", user_id=f"u{n}"))["job_id"] for n in range(JOBS)]
    heard = await asyncio.gather(
        *(listen(doors[n % 2 :] + doors[: n % 2], jobs[n % JOBS], n) for n in range(LISTENERS))
    )
    for n, seen in enumerate(heard):
        path = f"/api/v1/jobs/{jobs[n % JOBS]}/events"
        for app_context in doors:
            assert (await app_context.http.get(path)).json() == seen
        assert [each["seq"] for each in seen] == list(range(1, len(seen) + 1))
        assert seen[-1]["type"] == "JOB_COMPLETE"


async def fail_first(call: SimulatedExecution) -> Any:
    return web.Response(status=500) if call.attempt == 1 else {"said": "hello"}


async def listen(doors: list[Caller], job: str, number: int) -> list[dict[str, Any]]:
    """Cut after two or three events, and on at the next door."""
    seen: list[dict[str, Any]] = []
    for app_context in itertools.cycle(doors):
        async with aclosing(app_context.events(job, after=len(seen))) as events:
            async for event in events:
                seen.append(event)
                if (len(seen) + number) % 3 == 0:
                    break
        if seen and seen[-1]["type"] == "JOB_COMPLETE":
            return seen
    raise AssertionError
