"""More submits than can be written: who is refused, and what goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import pytest

from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.overload.limiter import (
    MIN_CONCURRENT_SUBMITS,
    SUBMITS_PER_LOOP_TURN,
    TARGET_WAIT_SECONDS,
    AdmissionLimiter,
)
from fairlane.config.settings import ServerSettings
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.world import World

pytestmark = pytest.mark.every_store


class SlowSource:
    """Knows everybody's tier, and tells it when it is let."""

    def __init__(self) -> None:
        self.asked, self.gate = asyncio.Semaphore(0), asyncio.Event()

    async def tiers_of(self, tenant: str, users: Collection[str]) -> dict[str, str]:
        self.asked.release()
        await self.gate.wait()
        return dict.fromkeys(users, "medium")


@asynccontextmanager
async def crowded(world: World, submits: int, inside: int) -> AsyncIterator[Gateway]:
    """So many of `submits` are under way, and get no further before the block ends."""
    source = SlowSource()
    async with (
        gateway(world.engine, ServerSettings(submits=submits)) as served,
        served.client() as client,
    ):
        core_of(world.engine).tier_source = source
        held = []
        for number in range(inside):
            job = {"service": "work", "user_id": f"user-{number}"}
            held.append(asyncio.create_task(client.post("/api/v1/jobs", json=job)))
            await source.asked.acquire()
        try:
            yield served
        finally:
            source.gate.set()
        answers = await asyncio.gather(*held)
        assert [each.status_code for each in answers] == [202] * inside
        low = await client.post("/api/v1/jobs", json=of("low"))
        assert low.status_code == 202


def of(tier: str) -> dict[str, str]:
    return {"service": "work", "priority": tier}


async def test_the_lowest_tier_is_refused_first_and_told_when_to_come_back(world: World) -> None:
    async with crowded(world, submits=4, inside=2) as served, served.client() as client:
        refused = await client.post("/api/v1/jobs", json=of("low"))
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"] == "1"
        for tier in ("medium", "high"):
            assert (await client.post("/api/v1/jobs", json=of(tier))).status_code == 202
        batch = {"jobs": [of("low"), of("high"), of("gold")]}
        results = (await client.post("/api/v1/jobs:batch", json=batch)).json()["results"]
        assert [each["status"] for each in results] == [503, 202, 422]


async def test_what_is_no_submit_passes_whatever_is_submitted(world: World) -> None:
    async with gateway(world.engine) as before, before.client() as client:
        job = (await client.post("/api/v1/jobs", json=of("high"))).json()["job_id"]
    async with crowded(world, submits=1, inside=1) as served, served.client() as client:
        for path in ("/api/v1/jobs", "/api/v1/jobs:batch"):
            assert (await client.post(path, content=b"not even read")).status_code == 503
        for path in ("/livez", "/readyz", "/queue/status", f"/api/v1/jobs/{job}"):
            assert (await client.get(path)).status_code == 200
        cancelled = await client.delete(f"/api/v1/jobs/{job}")
        assert cancelled.status_code == 200


async def test_places_are_counted_only_while_nobody_is_refused(world: World) -> None:
    async with (
        gateway(world.engine, ServerSettings(submits=4)) as served,
        served.client() as client,
    ):
        told = (await client.post("/api/v1/jobs", json=of("high"))).json()
        assert told["position"] is not None
        with served.app.app_context.limiter.inside(), served.app.app_context.limiter.inside():
            told = (await client.post("/api/v1/jobs", json=of("high"))).json()
        assert told["position"] is None
        seen = (await client.get(f"/api/v1/jobs/{told['job_id']}")).json()
        assert seen["position"] is not None


def test_an_empty_house_takes_the_largest_batch_and_then_nobody() -> None:
    limiter = AdmissionLimiter(2)
    limiter.check(rank=2, tiers=3)
    with limiter.inside(jobs=1000), pytest.raises(ProblemDetails):
        limiter.check()
    limiter.check(rank=2, tiers=3)


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def room(limiter: AdmissionLimiter) -> int:
    """How many of the best tier come in."""
    with ExitStack() as inside:
        for number in range(1000):
            if not limiter.has_room():
                return number
            inside.enter_context(limiter.inside())
    return 1000


def wait(limiter: AdmissionLimiter, clock: Hands, seconds: float, number: int = 1) -> None:
    """So many are let in, and begin after that time."""
    answered: list[Callable[[], None]] = []
    for _ in range(number):
        limiter.let_in(answered.append)
    clock.now += seconds
    while len(answered) < number:
        limiter.begin()
    for left in answered:
        left()


async def test_fewer_come_in_while_they_wait_long_and_more_again_when_they_do_not() -> None:
    clock = Hands()
    limiter = AdmissionLimiter(256, clock)
    assert room(limiter) == 256
    wait(limiter, clock, TARGET_WAIT_SECONDS * 1.01, number=100)
    assert room(limiter) == 224, "those that waited together count once"
    for _ in range(100):
        wait(limiter, clock, TARGET_WAIT_SECONDS * 1.01)
    assert room(limiter) == MIN_CONCURRENT_SUBMITS
    for _ in range(20_000):
        wait(limiter, clock, 0.001)
    assert room(limiter) == 256


async def test_who_is_written_slowly_takes_no_room_from_others() -> None:
    clock = Hands()
    limiter = AdmissionLimiter(256, clock)
    for _ in range(10):
        with limiter.inside():
            clock.now += 10 * TARGET_WAIT_SECONDS
    assert room(limiter) == 256


async def test_what_is_let_in_counts_until_it_is_answered() -> None:
    limiter, answered = AdmissionLimiter(4), list[Callable[[], None]]()
    limiter.let_in(answered.append)
    limiter.let_in(answered.append)
    for _ in range(2):
        assert not limiter.room_for_all
        assert limiter.has_room(rank=0, tiers=3)
        assert not limiter.has_room(rank=2, tiers=3)
        limiter.begin()
    for left in answered:
        left()
    assert limiter.room_for_all


async def test_only_some_begin_in_one_turn_and_in_their_order() -> None:
    limiter, begun = AdmissionLimiter(1000), list[int]()

    def begin(number: int, left: Callable[[], None]) -> None:
        begun.append(number)
        left()

    for number in range(3 * SUBMITS_PER_LOOP_TURN):
        limiter.let_in(partial(begin, number))
    most = 0
    while len(begun) < 3 * SUBMITS_PER_LOOP_TURN:
        before = len(begun)
        await asyncio.sleep(0)
        most = max(most, len(begun) - before)
    assert most == SUBMITS_PER_LOOP_TURN
    assert begun == sorted(begun)
