"""Quotas over HTTP: exact under concurrency, and a refusal says which limit, what is left and when
to come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fairlane import presets
from fairlane.clock import seconds
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.service import Executor, Service
from tests.api.server import Gateway, gateway
from tests.world import World

pytestmark = [pytest.mark.every_store, pytest.mark.usefixtures("_stores")]

CREATOR_PENDING, CREATOR_PER_HOUR = 20, 60
GENERATION = presets.generation()
"""The tiers of the preset, for a service that needs no worker."""

SETTINGS = Catalog(
    GENERATION.tiers, [Service("generate", limit=1, executor=Executor.CALLER)], limits=Limits()
)


@asynccontextmanager
async def serving(
    path: Path, limits: Limits | None = None
) -> AsyncIterator[tuple[World, Gateway, httpx2.AsyncClient]]:
    """A server with the tiers of the preset, and a client whose key may name users and tiers."""
    settings = Catalog(SETTINGS.tiers, SETTINGS.services.values(), limits=limits)
    async with World(settings, path / "ledger.db") as world, gateway(world.engine) as served:
        key = await served.key(act_as=True, set_priority=True)
        async with served.client(key) as client:
            yield world, served, client


def job(tier: str = "creator", user: str = "ada", **more: Any) -> dict[str, Any]:
    return {"service": "generate", "user_id": user, "priority": tier, **more}


async def submitted(
    client: httpx2.AsyncClient, bodies: Sequence[dict[str, Any]]
) -> list[httpx2.Response]:
    """The responses to these submits, all under way at the same time."""

    async def one(body: dict[str, Any]) -> httpx2.Response:
        return await client.post("/api/v1/jobs", json=body)

    return await asyncio.gather(*map(one, bodies))


def statuses(responses: Sequence[httpx2.Response]) -> Counter[int]:
    return Counter(each.status_code for each in responses)


def check_refusal(response: httpx2.Response, now: int, **expected: Any) -> dict[str, Any]:
    """The refusal has a Retry-After of at least a second and these members, and frees later."""
    body: dict[str, Any] = response.json()
    assert response.status_code == 429
    assert 1 <= int(response.headers["retry-after"]) <= 3_600
    assert {name: body[name] for name in expected} == expected
    assert datetime.fromisoformat(body["frees_at"]).timestamp() >= now / seconds(1)
    return body


async def test_two_hundred_submits_at_once_are_exactly_twenty_jobs(tmp_path: Path) -> None:
    """I13: 20 pending are allowed, and 180 are told which limit, what is left, when it frees."""
    async with serving(tmp_path) as (world, _, client):
        answers = await submitted(client, [job()] * 200)
        assert statuses(answers) == {202: CREATOR_PENDING, 429: 180}
        listed = (await client.get("/api/v1/jobs?limit=200")).json()["jobs"]
        assert len(listed) == CREATOR_PENDING
        for refused in answers:
            if refused.status_code == 429:
                check_refusal(
                    refused,
                    world.clock.now(),
                    code="too_many_pending",
                    setting="tiers.pending",
                    tier="creator",
                    limit=CREATOR_PENDING,
                    left=0,
                )


async def test_a_cancel_gives_one_pending_place_back_and_no_hourly_one(tmp_path: Path) -> None:
    """I13: sixty submits in an hour, however they end; each place of the hour frees an hour after
    its submit."""
    async with serving(tmp_path) as (world, _, client):
        start = world.clock.now()
        for _ in range(CREATOR_PER_HOUR):
            (accepted,) = await submitted(client, [job()])
            assert accepted.status_code == 202
            cancelled = await client.delete(f"/api/v1/jobs/{accepted.json()['job_id']}")
            assert cancelled.status_code == 200
            world.clock.advance(seconds(10))
        refused = await submitted(client, [job()] * 20)
        for each in refused:
            body = check_refusal(
                each,
                world.clock.now(),
                code="too_many_this_hour",
                setting="tiers.per_hour",
                tier="creator",
                limit=CREATOR_PER_HOUR,
                left=0,
            )
            frees_at = datetime.fromisoformat(body["frees_at"]).timestamp()
            assert frees_at == pytest.approx((start + seconds(3600)) / seconds(1))
            assert int(each.headers["retry-after"]) >= 3_000 - 1
        world.clock.advance(start + seconds(3599) - world.clock.now())
        assert statuses(await submitted(client, [job()] * 5)) == {429: 5}
        world.clock.advance(seconds(2))
        assert statuses(await submitted(client, [job()] * 5)) == {202: 1, 429: 4}
        world.clock.advance(seconds(10))
        assert statuses(await submitted(client, [job()] * 5)) == {202: 1, 429: 4}


async def test_the_time_at_which_a_pending_place_frees_is_about_true(tmp_path: Path) -> None:
    """I13: within a factor of two, for jobs that all take as long."""
    async with serving(tmp_path) as (world, _, client):
        for _ in range(5):
            await submitted(client, [job("admin", "bob")])
            lease = await world.claim_one()
            world.clock.advance(seconds(40))
            await world.engine.complete(lease)
        await submitted(client, [job("free"), job("free")])
        (refused,) = await submitted(client, [job("free")])
        now = world.clock.now()
        body = check_refusal(refused, now, code="too_many_pending", tier="free", limit=2)
        told = datetime.fromisoformat(body["frees_at"]).timestamp() - now / seconds(1)
        assert 20 <= told <= 80


async def test_a_duration_beyond_the_tier_says_what_the_tier_allows(tmp_path: Path) -> None:
    """I13: 422, because waiting does not help."""
    async with serving(tmp_path) as (_, _, client):
        (allowed,) = await submitted(client, [job("free", duration=30)])
        (refused,) = await submitted(client, [job("free", duration=30.5)])
        assert allowed.status_code == 202
        assert refused.status_code == 422
        body = refused.json()
        expected = {
            "code": "duration_too_long",
            "setting": "tiers.max_duration",
            "tier": "free",
            "limit": 30,
            "left": 0,
        }
        assert {name: body[name] for name in expected} == expected


async def test_the_queue_of_the_preset_takes_a_hundred_jobs_of_any_tier(tmp_path: Path) -> None:
    """I13: from 150 users of the lowest tier at once, exactly a hundred."""
    async with serving(tmp_path, GENERATION.limits) as (world, _, client):
        answers = await submitted(client, [job("free", f"user-{n}") for n in range(150)])
        assert statuses(answers) == {202: 100, 429: 50}
        refused = next(each for each in answers if each.status_code == 429)
        check_refusal(
            refused,
            world.clock.now(),
            code="queue_full",
            setting="limits.waiting",
            tier="free",
            limit=100,
            left=0,
        )


async def test_the_hour_refuses_before_the_pending_jobs_and_these_before_the_queue(
    tmp_path: Path,
) -> None:
    """I13: the order of the tiers' document."""
    async with serving(tmp_path, Limits(waiting=3, lowest_tier_share=1)) as (world, _, client):
        assert statuses(await submitted(client, [job("free")] * 3)) == {202: 2, 429: 1}
        codes = []
        for body in (job("free"), job("free", "bob"), job("free", "bob"), job("free", "eve")):
            (answer,) = await submitted(client, [body])
            codes.append(answer.json().get("code"))
        assert codes == ["too_many_pending", None, "queue_full", "queue_full"]
        ada = (await client.get("/api/v1/jobs?user_id=ada")).json()["jobs"]
        await client.delete(f"/api/v1/jobs/{ada[0]['job_id']}")
        await submitted(client, [job("free")])
        (last,) = await submitted(client, [job("free")])
        check_refusal(last, world.clock.now(), code="too_many_this_hour", limit=3)


async def test_a_repeated_request_is_answered_before_any_quota(tmp_path: Path) -> None:
    """I12: the job exists, whatever the quota says now."""
    async with serving(tmp_path) as (_, _, client):
        headers = {"Idempotency-Key": "once"}
        first = await client.post("/api/v1/jobs", json=job("free"), headers=headers)
        assert statuses(await submitted(client, [job("free")] * 5)) == {202: 1, 429: 4}
        again = await client.post("/api/v1/jobs", json=job("free"), headers=headers)
        assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])


async def test_a_key_may_name_twenty_of_two_hundred_users(tmp_path: Path) -> None:
    """S8: exactly twenty when all come at once. Those twenty go on; another key has its own."""
    async with serving(tmp_path, Limits(users_per_key=20)) as (world, served, client):
        bodies = [job(user=f"user-{n}") for n in range(200)]
        answers = await submitted(client, bodies)
        assert statuses(answers) == {202: 20, 429: 180}
        refused = next(each for each in answers if each.status_code == 429)
        check_refusal(
            refused,
            world.clock.now(),
            code="too_many_users",
            setting="limits.users_per_key",
            tier="creator",
            limit=20,
            left=0,
        )
        known = [body for body, each in zip(bodies, answers, strict=True) if each.is_success]
        assert statuses(await submitted(client, known)) == {202: 20}
        other = await served.key(act_as=True, set_priority=True)
        async with served.client(other) as second:
            assert statuses(await submitted(second, bodies[:30])) == {202: 20, 429: 10}
        world.clock.advance(seconds(3600))
        assert statuses(await submitted(client, bodies[-30:])) == {202: 20, 429: 10}


async def test_a_refused_job_of_a_batch_has_the_same_members(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, client):
        answer = await client.post("/api/v1/jobs:batch", json={"jobs": [job("free")] * 3})
        *accepted, refused = answer.json()["results"]
        assert [each["status"] for each in accepted] == [202, 202]
        error = refused["error"]
        assert (error["code"], error["setting"], error["tier"], error["limit"], error["left"]) == (
            "too_many_pending",
            "tiers.pending",
            "free",
            2,
            0,
        )


async def test_development_mode_counts_no_users(tmp_path: Path) -> None:
    """S8: without a key there is one developer, who may name any number of users."""
    settings = Catalog(SETTINGS.tiers, SETTINGS.services.values(), limits=Limits(users_per_key=1))
    async with (
        World(settings, tmp_path / "ledger.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        assert statuses(await submitted(client, [job(user=f"u{n}") for n in range(5)])) == {202: 5}
