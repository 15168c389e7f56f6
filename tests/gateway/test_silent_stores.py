"""A store goes silent under real processes: no answer comes, and no connection breaks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.cluster.fleet import comes_true
from tests.gateway.site import LONG_ENOUGH, Caller, Site
from tests.proxy import Proxy

SILENT_SECONDS = 3.0
SOON = 10.0
"""Seconds in which something happens that is promised within two, on a busy machine. What was wrong
took from 30 to 75."""

pytestmark = pytest.mark.long


@asynccontextmanager
async def behind(site: Site, store: str) -> AsyncIterator[Proxy]:
    """Processes that start inside reach the store through the proxy."""
    if not site.clustered:
        pytest.skip("an embedded queue reaches its stores without a network")
    async with Proxy(site.variables[store]) as proxy:
        site.variables[store] = proxy.url
        yield proxy


class Traffic:
    """Somebody submits all the time. Each answer with when it was asked for, and how long it
    took."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.answers: list[tuple[float, float, httpx2.Response]] = []

    async def run(self) -> None:
        while True:
            asked = time.monotonic()
            answer = await self._caller.http.post(
                "/api/v1/jobs", json={"feature_name": "fast_chat_llm"}
            )
            self.answers.append((asked, time.monotonic() - asked, answer))
            await asyncio.sleep(0.02)


async def silent_for_a_while(proxy: Proxy) -> tuple[float, float]:
    began = time.monotonic()
    proxy.silence()
    await asyncio.sleep(SILENT_SECONDS)
    proxy.end_silence()
    return began, time.monotonic()


@asynccontextmanager
async def traffic(caller: Caller) -> AsyncIterator[Traffic]:
    running = Traffic(caller)
    task = asyncio.create_task(running.run())
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_api_whose_database_is_silent_says_so_and_comes_back(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """I28: 503 with Retry-After meanwhile; nothing accepted is lost, and no call is made twice."""
    async with behind(site, "DATABASE_URL") as proxy:
        chat = site.services["fast_chat_llm"]
        api = await site.serve()
        caller = await site.caller(api)
        async with traffic(caller) as sent:
            await chat.until(lambda it: it.finished > 5)
            silent, ended = await silent_for_a_while(proxy)

            def back() -> list[float]:
                found = [each for each in sent.answers if each[2].status_code == 202]
                return [at + took for at, took, _ in found if at + took > ended]

            async def is_back() -> bool:
                return bool(back())

            await comes_true(is_back)
            async with asyncio.timeout(LONG_ENOUGH):
                finished = chat.finished
                await chat.until(lambda it: it.finished > finished + 5)
            called_again = time.monotonic() - ended
        refused = [each for each in sent.answers if each[2].status_code != 202]
        assert refused
        assert {answer.status_code for _, _, answer in refused} == {503}
        assert all("Retry-After" in answer.headers for _, _, answer in refused)
        noticed = refused[0][0] + refused[0][1] - silent
        longest = max(took for _, took, _ in sent.answers)
        with capsys.disabled():
            print(
                f"\nnoticed after {noticed:.2f} s, longest answer {longest:.2f} s, back after "
                f"{back()[0] - ended:.2f} s, calls after {called_again:.2f} s",
                end=" ",
            )
        assert max(noticed, longest, back()[0] - ended, called_again) < SOON
        accepted = [each[2].json()["job_id"] for each in sent.answers if each[2].is_success]
        for job in accepted:
            assert (await caller.ended(job))["status"] == "completed"
        attempts = [(call.job, call.attempt) for call in chat.calls]
        assert len(attempts) == len(set(attempts))
        assert chat.most <= chat.limit
        assert all(json.loads(line) for line in site.log().splitlines()), "every line is JSON"


async def test_a_silent_redis_delays_calls_and_nothing_else(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """I26: submits are accepted all the time, and calls go on soon after."""
    async with behind(site, "REDIS_URL") as proxy:
        chat = site.services["fast_chat_llm"]
        api = await site.serve()
        caller = await site.caller(api)
        async with traffic(caller) as sent:
            await chat.until(lambda it: it.finished > 5)
            _, ended = await silent_for_a_while(proxy)
            finished = chat.finished
            async with asyncio.timeout(LONG_ENOUGH):
                await chat.until(lambda it: it.finished > finished + 5)
            called_again = time.monotonic() - ended
        took = sorted(took for _, took, _ in sent.answers)
        with capsys.disabled():
            print(f"\nslowest submits {took[-3:]}, calls after {called_again:.2f} s", end=" ")
        assert {answer.status_code for _, _, answer in sent.answers} == {202}
        assert max(took[-1], called_again) < SOON
        assert took[-10] < 1 or sum(took[-10:]) < SOON
        for _, _, answer in sent.answers:
            assert (await caller.ended(answer.json()["job_id"]))["status"] == "completed"
        assert chat.most <= chat.limit
