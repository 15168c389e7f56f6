"""How often a key may ask (reliability, the admission ladder)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.api.auth.roles import Identity
from fairlane.api.rate_limit import MAX_REMEMBERED_KEYS, RateLimiter
from fairlane.clock import seconds
from fairlane.config.settings import ServerSettings
from fairlane.errors import Refused
from fairlane.model.key import Role
from fairlane.units import SECOND
from tests.api.server import gateway
from tests.world import World

JOB = {"service": "work"}
CLIENT = Identity("key", "acme", Role.CLIENT, act_as=True, set_priority=False)


def admitted_at(rate_limiter: RateLimiter, identity: Identity, now: int) -> int:
    """Now, or when it was told to come back."""
    try:
        rate_limiter.admit(identity, now)
    except Refused as refused:
        return refused.frees_at or 0
    return now


@pytest.mark.every_store
async def test_a_key_that_asks_too_often_waits_and_no_other_does(world: World) -> None:
    """60 a minute: ten at once, then one a second."""
    async with gateway(world.engine, ServerSettings(key_rate=60)) as served:
        key, other = await served.key(), await served.key()
        async with served.client(key) as client, served.client(other) as neighbour:
            codes = [(await client.post("/api/v1/jobs", json=JOB)).status_code for _ in range(11)]
            assert codes == [202] * 10 + [429]
            refused = await client.get("/api/v1/jobs")
            assert refused.json()["code"] == "too_many_requests"
            assert refused.json()["limit"] == 60
            assert int(refused.headers["retry-after"]) == 1
            assert (await neighbour.get("/api/v1/jobs")).status_code == 200
            world.clock.advance(SECOND)
            assert (await client.get("/api/v1/jobs")).status_code == 200
            assert (await client.get("/api/v1/jobs")).status_code == 429


async def test_what_makes_room_is_never_refused(world: World) -> None:
    async with gateway(world.engine, ServerSettings(key_rate=6)) as served:
        async with served.client(await served.key()) as client:
            job = (await client.post("/api/v1/jobs", json=JOB)).json()["job_id"]
            assert (await client.post("/api/v1/jobs", json=JOB)).status_code == 429
            assert (await client.delete(f"/api/v1/jobs/{job}")).status_code == 200
        async with served.client(await served.key(Role.WORKER)) as worker:
            codes = {(await worker.get("/openapi.json")).status_code for _ in range(20)}
            assert codes == {200}


async def test_a_batch_counts_by_its_size(world: World) -> None:
    """A hundred jobs are ten requests more: the key waits for as long as it would have anyway."""
    async with (
        gateway(world.engine, ServerSettings(key_rate=60)) as served,
        served.client(await served.key()) as client,
    ):
        answer = await client.post("/api/v1/jobs:batch", json={"jobs": [JOB] * 100})
        assert answer.status_code == 200
        assert (await client.get("/api/v1/jobs")).status_code == 429
        world.clock.advance(seconds(1.9))
        assert (await client.get("/api/v1/jobs")).status_code == 429
        world.clock.advance(seconds(0.1))
        assert (await client.get("/api/v1/jobs")).status_code == 200


async def test_in_development_and_without_a_limit_nobody_counts(world: World) -> None:
    for server in (ServerSettings(key_rate=1), ServerSettings(key_rate=0)):
        async with gateway(world.engine, server) as served:
            key = None if server.key_rate else await served.key()
            async with served.client(key) as client:
                codes = {(await client.get("/api/v1/jobs")).status_code for _ in range(20)}
                assert codes == {200}


@given(
    rate=st.integers(1, 100_000),
    gaps=st.lists(st.integers(0, 20 * SECOND), min_size=1, max_size=60),
)
def test_nobody_passes_more_often_than_the_rate_and_one_burst(rate: int, gaps: list[int]) -> None:
    """In every stretch of time; and who was refused passes at the time that was named."""
    rate_limiter, now, passed = RateLimiter(rate), 0, []
    for gap in gaps:
        now += gap
        free = admitted_at(rate_limiter, CLIENT, now)
        if free > now:
            now = admitted_at(rate_limiter, CLIENT, free)
        assert now == free
        passed.append(now)
    cost = 60 * SECOND // rate
    for i, began in enumerate(passed):
        for j, ended in enumerate(passed[i:], 1):
            assert j * cost <= max(10 * SECOND, cost) + (ended - began)


def test_the_memory_of_who_asked_is_bounded() -> None:
    """Beyond ten thousand keys at once, who has been quiet for longest begins anew."""
    rate_limiter = RateLimiter(1)
    quiet = CLIENT._replace(key="quiet")
    rate_limiter.admit(quiet, 0)
    for i in range(MAX_REMEMBERED_KEYS - 1):
        rate_limiter.admit(CLIENT._replace(key=str(i)), 0)
    assert admitted_at(rate_limiter, quiet, 0) > 0
    rate_limiter.admit(CLIENT._replace(key="one more"), 0)
    assert admitted_at(rate_limiter, quiet, 0) == 0
