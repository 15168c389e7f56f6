"""What still works over HTTP while a store is away, and how soon the rest works again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fairlane.servers import Postgres, Redis
from tests.cluster.fleet import comes_true
from tests.gateway.site import Site

SOON = 10.0
"""Seconds in which something happens that is promised within one or two, on a busy machine."""

SAID_SECONDS = 20.0
WISH = {"feature_name": "fast_chat_llm"}


@pytest.fixture
async def site(tmp_path: Path, durable_server: Postgres, own_redis: Redis) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        stores = {
            "DATABASE_URL": await durable_server.new_database(),
            "REDIS_URL": own_redis.url,
        }
        site = Site(tmp_path, stores, stack)
        await site.open()
        yield site


async def test_without_redis_jobs_are_accepted_and_wait(
    site: Site, own_redis: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    """I26: jobs and metrics can be read, and /readyz says that claims are paused. Calls begin again
    within 2 s of its return."""
    chat = site.services["fast_chat_llm"]
    api = await site.serve()
    caller = await site.caller(api)
    assert (await caller.ended((await caller.submit("fast_chat_llm"))["job_id"]))["status"]
    own_redis.kill()

    async def says_so() -> bool:
        answer = await caller.http.get("/readyz")
        assert answer.status_code == 200
        return answer.text == "ok, claims paused: the index cannot be reached"

    await comes_true(says_so, within=SAID_SECONDS)
    jobs = [(await caller.submit("fast_chat_llm"))["job_id"] for _ in range(5)]
    for job in jobs:
        seen = await caller.job(job)
        assert (seen["status"], seen["position"]) == ("queued", None)
    metrics = await caller.http.get("/metrics")
    assert metrics.status_code == 200
    assert "fairlane_ready 0" in metrics.text
    assert 'fairlane_jobs{status="queued"} 5' in metrics.text
    assert len(chat.calls) == 1, "nothing is handed out without an order"
    own_redis.start()
    back = time.monotonic()
    await chat.until(lambda it: len(it.calls) > 1)
    took = time.monotonic() - back
    with capsys.disabled():
        print(f"\ncalls again {took:.2f} s after Redis was back (promised: 2)", end=" ")
    assert took < SOON
    for job in jobs:
        assert (await caller.ended(job))["status"] == "completed"

    async def is_well() -> bool:
        return (await caller.http.get("/readyz")).text == "ok"

    await comes_true(is_well)


async def test_without_postgres_calls_go_on_and_their_results_are_kept(
    site: Site, durable_server: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    """I28, I33: every request is 503 with `Retry-After` within a second. What runs goes on, and its
    result is delivered when the server is back: once, by the first attempt."""
    chat = site.services["fast_chat_llm"]
    chat.seconds = 1.0
    api = await site.serve()
    caller = await site.caller(api)
    job = (await caller.submit("fast_chat_llm"))["job_id"]
    await chat.until(lambda it: it.running == 1)
    durable_server.kill()
    times = []
    for _ in range(3):
        asked = time.monotonic()
        answer = await caller.http.post("/api/v1/jobs", json=WISH)
        times.append(time.monotonic() - asked)
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        assert answer.headers["Retry-After"] == "1"
    await chat.until(lambda it: it.finished == 1)
    durable_server.start()
    back = time.monotonic()

    async def is_delivered() -> bool:
        answer = await caller.http.get(f"/api/v1/jobs/{job}")
        return answer.status_code == 200 and answer.json()["status"] == "completed"

    await comes_true(is_delivered)
    took = time.monotonic() - back
    with capsys.disabled():
        print(
            f"\n503 after {max(times):.2f} s (promised: 1), result {took:.2f} s after the server "
            "was back (promised: 2)",
            end=" ",
        )
    assert max(*times, took) < SOON
    assert (await caller.job(job))["context"]["step_0_fast_chat_llm__attempts"] == 1
    assert len(chat.calls) == 1
