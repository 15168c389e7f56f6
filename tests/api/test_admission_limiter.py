"""S13: more submits than can be written: which ones wait, which ones are refused, and what
passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.overload.limiter import (
    LOWEST_TIER_WAIT,
    MAX_QUEUE_SECONDS,
    MAX_WAITING_BYTES,
    AdmissionLimiter,
    Place,
)
from fairlane.config.settings import ServerSettings
from fairlane.model.key import Role
from tests.api.raw import exchange
from tests.api.server import Gateway, gateway
from tests.world import World

pytestmark = pytest.mark.every_store

JOB = b'{"service": "work"}'
PATHS = ("/api/v1/jobs", "/api/v1/jobs:batch", "/api/v1/tasks")


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def of(tier: str) -> dict[str, str]:
    return {"service": "work", "priority": tier}


async def until_waiting(limiter: AdmissionLimiter, number: int) -> None:
    while limiter.waiting < number:  # noqa: ASYNC110 - no event tells that a request has arrived
        await asyncio.sleep(0)


@asynccontextmanager
async def full(world: World, clock: Hands) -> AsyncIterator[tuple[Gateway, AdmissionLimiter]]:
    """A gateway with one place for submits, which is taken until the block ends."""
    async with gateway(world.engine, ServerSettings(submits=1, key_rate=0)) as served:
        limiter = served.app.app_context.limiter = AdmissionLimiter(1, clock)
        async with limiter.place():
            yield served, limiter


# --- over HTTP -----------------------------------------------------------------------------------
async def test_the_lowest_tier_is_refused_first_and_told_when_to_come_back(world: World) -> None:
    clock = Hands()
    async with gateway(world.engine) as served, served.client() as client:
        limiter = served.app.app_context.limiter = AdmissionLimiter(1, clock)
        batch = {"jobs": [of("low"), of("high"), of("gold")]}
        async with limiter.place():
            posts = [
                asyncio.create_task(client.post("/api/v1/jobs", json=of(tier)))
                for tier in ("high", "medium", "low")
            ]
            posts.append(asyncio.create_task(client.post("/api/v1/jobs:batch", json=batch)))
            await until_waiting(limiter, 4)
            clock.now += MAX_QUEUE_SECONDS * (LOWEST_TIER_WAIT + 0.01)
        high, medium, low, many = await asyncio.gather(*posts)
        assert (high.status_code, medium.status_code) == (202, 202)
        assert (low.status_code, low.json()["code"]) == (503, "overloaded")
        assert low.headers["retry-after"] == "1"
        assert [each["status"] for each in many.json()["results"]] == [503, 202, 422]
        assert (await client.post("/api/v1/jobs", json=of("low"))).status_code == 202


async def test_what_is_no_submit_passes_whatever_is_submitted(world: World) -> None:
    async with gateway(world.engine) as before, before.client() as client:
        job = (await client.post("/api/v1/jobs", json=of("high"))).json()["job_id"]
    clock = Hands()
    async with full(world, clock) as (served, limiter), served.client() as client:
        posts = [asyncio.create_task(client.post(path, json=of("high"))) for path in PATHS]
        await until_waiting(limiter, len(PATHS))
        for path in ("/livez", "/readyz", "/queue/status", f"/api/v1/jobs/{job}"):
            assert (await client.get(path)).status_code == 200
        assert (await client.delete(f"/api/v1/jobs/{job}")).status_code == 200
        clock.now += MAX_QUEUE_SECONDS
        limiter.expire()
        for refused in await asyncio.gather(*posts):
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        counted = (await client.get("/metrics")).text
        assert f'fairlane_shed_total{{reason="overloaded"}} {len(PATHS)}' in counted


async def test_a_refusal_comes_by_itself(world: World) -> None:
    async with (
        gateway(world.engine, ServerSettings(submits=1)) as served,
        served.client() as client,
        served.app.app_context.limiter.place(),
    ):
        assert (await client.post("/api/v1/jobs", json=of("high"))).status_code == 503


async def test_a_place_is_taken_until_the_answer_whatever_that_is(world: World) -> None:
    async with gateway(world.engine, ServerSettings(submits=2)) as served:
        limiter = served.app.app_context.limiter
        async with served.client() as client:
            for body in (JOB, b'{"service": "work", "priority": "gold"}', b"{", b"[]"):
                kind = {"Content-Type": "application/json"}
                await client.post("/api/v1/jobs", content=body, headers=kind)
                assert not limiter.is_busy


async def test_a_body_that_takes_its_time_takes_no_place(world: World) -> None:
    async with gateway(world.engine, ServerSettings(submits=1)) as served:
        head = _head(b"Authorization: Bearer " + (await served.key()).encode())
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head + b"\r\n\r\n" + JOB[:5])
        await writer.drain()
        assert (await exchange(served.port, head, JOB)).status == 202
        writer.write(JOB[5:])
        assert b" 202 " in await reader.readuntil(b"}")
        writer.close()


async def test_everything_before_it_on_the_ladder_is_said_first(world: World) -> None:
    async with full(world, Hands()) as (served, _):
        client, worker = await served.key(Role.CLIENT), await served.key(Role.WORKER)
        own, other = (b"Authorization: Bearer " + key.encode() for key in (client, worker))
        for head, status in (
            (_head(b"X-Key: none"), 401),
            (_head(own[:-1] + b"_"), 401),
            (_head(other), 403),
            (_head(own, size=9 << 20), 413),
            (_head(own).replace(b"localhost", b"elsewhere"), 421),
        ):
            assert (await exchange(served.port, head, JOB)).status == status


async def test_places_are_counted_only_while_nobody_is_refused(world: World) -> None:
    async with (
        gateway(world.engine, ServerSettings(submits=4)) as served,
        served.client() as client,
    ):
        told = (await client.post("/api/v1/jobs", json=of("high"))).json()
        assert told["position"] is not None
        limiter = served.app.app_context.limiter
        async with limiter.place(), limiter.place():
            told = (await client.post("/api/v1/jobs", json=of("high"))).json()
        assert told["position"] is None
        seen = (await client.get(f"/api/v1/jobs/{told['job_id']}")).json()
        assert seen["position"] is not None


def _head(*more: bytes, size: int = len(JOB)) -> bytes:
    lines = [b"POST /api/v1/jobs HTTP/1.1", b"Host: localhost", *more]
    return b"\r\n".join([*lines, b"Content-Type: application/json", b"Content-Length: %d" % size])


# --- the line ------------------------------------------------------------------------------------
async def entered(limiter: AdmissionLimiter, body_bytes: int = 0) -> Place:
    """A place that is not left."""
    return await limiter.place(body_bytes).__aenter__()


async def test_submits_in_line_begin_in_their_order_as_places_become_free() -> None:
    limiter, begun = AdmissionLimiter(2), list[int]()

    async def submit(number: int, over: asyncio.Event) -> None:
        async with limiter.place():
            begun.append(number)
            await over.wait()

    ends = [asyncio.Event() for _ in range(6)]
    async with asyncio.TaskGroup() as group:
        for number, over in enumerate(ends):
            group.create_task(submit(number, over))
        await until_waiting(limiter, 4)
        assert begun == [0, 1]
        ends[1].set()
        while len(begun) < 3:  # noqa: ASYNC110 - the next one begins in a few turns of the loop
            await asyncio.sleep(0)
        assert begun == [0, 1, 2]
        for over in ends:
            over.set()
    assert begun == [0, 1, 2, 3, 4, 5]
    assert not limiter.is_busy


async def test_only_submits_that_waited_long_enough_are_refused() -> None:
    clock = Hands()
    limiter = AdmissionLimiter(1, clock)
    await entered(limiter)
    first = asyncio.create_task(entered(limiter))
    await until_waiting(limiter, 1)
    clock.now += MAX_QUEUE_SECONDS / 2
    second = asyncio.create_task(entered(limiter))
    await until_waiting(limiter, 2)
    clock.now += MAX_QUEUE_SECONDS / 2
    limiter.expire()
    with pytest.raises(ProblemDetails):
        await first
    assert limiter.waiting == 1
    second.cancel()


async def test_the_bodies_in_line_are_bounded() -> None:
    """The clock stands still, so that no wait in line is ever over."""
    limiter = AdmissionLimiter(1, clock=lambda: 0.0)
    await entered(limiter)
    waiting = asyncio.create_task(entered(limiter, MAX_WAITING_BYTES))
    await until_waiting(limiter, 1)
    with pytest.raises(ProblemDetails):
        await asyncio.wait_for(entered(limiter, 1), 10)
    waiting.cancel()


async def test_a_batch_weighs_by_its_jobs() -> None:
    limiter = AdmissionLimiter(2)
    async with limiter.place() as place:
        place.holds(jobs=1000)
        waiting = asyncio.create_task(entered(limiter))
        await until_waiting(limiter, 1)
    await waiting
    assert limiter.is_busy


async def test_a_request_that_ends_in_line_takes_no_place() -> None:
    limiter = AdmissionLimiter(1)
    async with limiter.place():
        gone, admitted = (asyncio.create_task(entered(limiter)) for _ in range(2))
        await until_waiting(limiter, 2)
        gone.cancel()
        await asyncio.wait([gone])
    admitted.cancel()  # its place is free, and it has not begun
    await asyncio.wait([admitted])
    async with limiter.place():
        assert limiter.is_busy
    assert not limiter.is_busy
