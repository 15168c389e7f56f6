"""Cancelled, resumed, without the Priority Service, with a sick service, short of files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from fairlane.demo.priority_service import DemoPriorityService
from fairlane.demo.services import SimulatedExecution
from tests.cluster.fleet import comes_true
from tests.gateway.site import LEASE, Caller, Site

LONGEST_CUT = 15.0
"""Seconds from a cancel to the end of its call, promised to be one, on a busy machine."""

pytestmark = pytest.mark.long


class Listening:
    """A service that never answers, and notices when its caller hangs up."""

    def __init__(self) -> None:
        self.called, self.cut = asyncio.Event(), asyncio.Event()
        self.cut_at = 0.0
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Listening]:
        server = await asyncio.start_server(self._hear, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.called.set()
        while await reader.read(65536):
            pass
        self.cut_at = asyncio.get_running_loop().time()
        self.cut.set()
        writer.close()


async def test_cancel_reaches_a_running_call(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within a second, with room for a busy machine; the heartbeat of this lease would take
    twenty. On a cluster it comes through another process than the one that calls."""
    site.set("server", lease=60)
    async with Listening().serving() as service:
        site.set("services.image_gen", url=service.url)
        calling = await site.serve()
        caller = await site.caller(calling)
        job = (await caller.submit("image_gen"))["job_id"]
        await service.called.wait()
        async with caller.at(await site.other_door(calling)) as elsewhere:
            began = asyncio.get_running_loop().time()
            answer = await elsewhere.http.delete(f"/api/v1/jobs/{job}")
            assert answer.json()["status"] == "cancelled"
            async with asyncio.timeout(30):
                await service.cut.wait()
            took = service.cut_at - began
            with capsys.disabled():
                print(f"\ncut after {took:.2f} s (promised: 1)", end=" ")
            assert took < LONGEST_CUT
            assert (await elsewhere.ended(job))["status"] == "cancelled"


async def test_resume_goes_on_where_it_stopped(site: Site) -> None:
    """No slot in time is the one failure that can be resumed; the first step is not repeated."""
    api = await site.serve()
    caller, admin = await site.caller(api), await site.admin(api)
    await admin.change("fast_chat_llm", paused=True)
    job = (await caller.submit("text_only", max_wait_seconds=0.5))["job_id"]
    failed = await caller.ended(job)
    assert (failed["status"], failed["current_step_index"]) == ("failed", 1)
    assert failed["error"]["code"] == "RESOURCE_EXHAUSTED"
    assert failed["error"]["resumable"]
    await admin.change("fast_chat_llm", paused=False)
    assert (await caller.http.post(f"/api/v1/jobs/{job}/resume")).status_code in (200, 202)
    assert (await caller.ended(job))["status"] == "completed"
    assert [len(site.services[name].calls) for name in ("prompt_enhancer", "fast_chat_llm")] == [
        1,
        1,
    ]


async def test_a_job_sent_while_the_priority_service_is_away_keeps_its_users_tier(
    site: Site,
) -> None:
    """Also through a restart; who was never heard of gets the fallback, and nobody is lifted."""
    site.set("priority", cache=0)
    async with DemoPriorityService({"john": "high", "alice": "low"}).serving() as subscriptions:
        site.variables["PRIORITY_API_URL"] = subscriptions.url
        first = await site.serve()
        caller = await site.caller(first)
        known = {"john": "high", "alice": "low"}
        assert await tiers(caller, *known) == known
        subscriptions.down = True
        assert await tiers(caller, *known, "zoe") == {**known, "zoe": "medium"}
        async with caller.at(await site.another(first)) as again:
            assert await tiers(again, *known, "zoe") == {**known, "zoe": "medium"}
            subscriptions.down = False
            subscriptions.tiers["john"] = "medium"

            async def heard_again() -> bool:
                return (await tiers(again, "john")) == {"john": "medium"}

            await comes_true(heard_again)


async def tiers(caller: Caller, *users: str) -> dict[str, str]:
    return {user: (await caller.submit("model_3d_gen", user_id=user))["priority"] for user in users}


async def test_a_sick_service_harms_no_job_and_is_hardly_asked(site: Site) -> None:
    """503 for three probes with 1,000 jobs waiting: none fails, and from the first call on at most
    limit + 1 calls reach it from one probe to the next."""
    chat = site.services["fast_chat_llm"]
    clock = asyncio.get_running_loop()
    heard_at: list[float] = []

    def hear(_: SimulatedExecution) -> None:
        if chat.switches.status:
            heard_at.append(clock.time())

    chat.heard, chat.switches.status = hear, 503
    api = await site.serve()
    if site.clustered:
        await asyncio.gather(site.dispatch(), site.dispatch())
    caller = await site.caller(api)
    wishes = [{"feature_name": "fast_chat_llm", "user_id": f"u{n % 50}"} for n in range(1000)]
    sent = await caller.http.post("/api/v1/jobs:batch", json={"jobs": wishes})
    assert {each["status"] for each in sent.json()["results"]} == {202}
    await chat.until(lambda _: len(heard_at) > 1 and heard_at[-1] - heard_at[0] > 6.5)
    chat.switches.status = 0
    await chat.until(lambda it: it.finished == 1000)
    closed_for = [each - heard_at[0] for each in heard_at]
    print("heard while it was sick, seconds:", [round(each, 2) for each in closed_for])
    for since in closed_for:
        assert sum(since <= each < since + 0.9 for each in closed_for) <= chat.limit + 1

    async def some(state: str) -> bool:
        page = await caller.http.get("/api/v1/jobs", params={"status": state, "limit": 1})
        return bool(page.json()["jobs"])

    async def all_over() -> bool:
        return not (await some("queued") or await some("running"))

    await comes_true(all_over)
    assert not await some("failed")
    assert not await some("dead")
    assert (chat.most <= chat.limit, chat.refused) == (True, 0)


async def test_a_flood_of_connections_costs_nobody_a_lease(site: Site) -> None:
    """I35: 64 files and 1,000 connections. Calls under way go on, and so does the API once there
    are files again: it is full for three leases."""
    chat = site.services["fast_chat_llm"]
    chat.seconds = 3 * LEASE
    api = await site.serve(files=64)
    caller = await site.caller(api)
    jobs = [(await caller.submit("fast_chat_llm"))["job_id"] for _ in range(4)]
    await chat.until(lambda it: it.running == 4)
    port = urlsplit(api.url).port
    async with AsyncExitStack() as stack:
        for _ in range(1000):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        await chat.until(lambda it: it.finished == 4)
    for job in jobs:
        done = await caller.ended(job)
        assert done["status"] == "completed"
        assert done["context"]["step_0_fast_chat_llm__attempts"] == 1
    assert len(chat.calls) == 4
    log = [json.loads(line) for line in site.log().splitlines()]
    print(len(log), "lines of log")
    assert len(log) < 2000
