"""What waits for a region, and only there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.service import Region, RetryPlace, Service
from fairlane.model.worker import Worker
from tests.api.server import Gateway, gateway
from tests.world import TIERS, World

pytestmark = pytest.mark.every_store
REGIONS = {name: Region(name, 2) for name in ("ASIA", "EU", "US")}


@pytest.fixture
async def world(tmp_path: Path, _stores: None) -> AsyncIterator[World]:
    async with World(Catalog(TIERS, [Service("ask", regions=REGIONS)]), tmp_path / "l.db") as made:
        yield made


async def test_what_may_only_run_in_one_region_counts_there_alone(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        await world.submit("ask", regions=("ASIA",))
        lease = await world.claim_one(Worker("w", region="ASIA"))
        await world.engine.fail(lease, Fault.TRANSIENT, "again, please")
        shown = (await client.get("/queue/status")).json()
        assert {name: each["retry"] for name, each in shown["regions"].items()} == {
            "ASIA": 1,
            "EU": 0,
            "US": 0,
        }
        assert (shown["global_retry"], shown["services"]["ask"]["retry"]) == (0, 1)
        assert (await client.get("/queue/status/ASIA")).json() == shown["regions"]["ASIA"]


async def test_the_oldest_in_a_region_is_one_that_may_run_there(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        await world.submit("ask", regions=("ASIA",))
        await world.pass_time(20)
        await world.submit("ask", regions=("EU", "EU", "US"))
        await world.pass_time(5)
        shown = (await client.get("/queue/status")).json()["regions"]
        ages = {name: each["oldest_age_seconds"] for name, each in shown.items()}
        assert ages == {"ASIA": 25.0, "EU": 5.0, "US": 5.0}
        assert {name: each["waiting"] for name, each in shown.items()} == dict.fromkeys(REGIONS, 1)
        await world.submit_all([NewJob("ask")])
        shown = (await client.get("/queue/status")).json()["regions"]
        assert {name: each["waiting"] for name, each in shown.items()} == dict.fromkeys(REGIONS, 2)


@pytest.mark.usefixtures("_stores")
async def test_a_retry_of_several_regions_is_global_and_due_front_retries_count(
    tmp_path: Path,
) -> None:
    ask = Service("ask", regions=REGIONS, retry_place=RetryPlace.FRONT, backoff=(0.0,))
    async with (
        World(Catalog(TIERS, [ask]), tmp_path / "front.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        await world.submit("ask", regions=("ASIA",))
        await world.submit("ask", regions=("ASIA", "EU"))
        for lease in await world.claim(2, Worker("w", region="ASIA")):
            await world.engine.fail(lease, Fault.TRANSIENT, "again, please")
        await world.submit("ask")
        shown = (await client.get("/queue/status")).json()
        asia = shown["regions"]["ASIA"]
        assert (asia["waiting"], asia["retry"], shown["global_retry"]) == (1, 1, 1)
        assert shown["services"]["ask"]["retry"] == 2


async def test_where_each_attempt_ran_is_in_the_job_the_attempts_and_the_metrics(
    world: World, served: Gateway
) -> None:
    """The region of every attempt; a region that is not configured adds no label."""
    async with served.client() as client:
        job = await world.submit("ask")
        first = await world.claim_one(Worker("w", region="ASIA"))
        await world.engine.fail(first, Fault.TRANSIENT, "again, please")
        await world.pass_time(60)
        await world.engine.complete(await world.claim_one(Worker("v", region="MOON")))
        assert (await client.get(f"/api/v1/jobs/{job}")).json()["region"] == "MOON"
        tried = (await client.get(f"/api/v1/jobs/{job}/attempts")).json()["attempts"]
        assert [(each["region"], each["outcome"]) for each in tried] == [
            ("ASIA", "failed"),
            ("MOON", "completed"),
        ]
        metrics = (await client.get("/metrics")).text
        assert 'attempts_total{service="ask",region="ASIA",outcome="failed"} 1' in metrics
        assert 'attempts_total{service="ask",region="other",outcome="completed"} 1' in metrics
        assert "MOON" not in metrics


async def test_dead_letters_are_replayed_by_region_service_error_and_time(
    world: World, served: Gateway
) -> None:
    """A preview says what would run and changes nothing."""
    async with served.client() as client:
        ended = {}
        for region, fault in (
            ("ASIA", Fault.TIMEOUT),
            ("EU", Fault.TIMEOUT),
            ("EU", Fault.TRANSIENT),
        ):
            job = await world.submit("ask", regions=(region,), max_retries=0)
            await world.engine.fail(await world.claim_one(Worker("w", region=region)), fault, "no")
            ended[job] = (region, fault)
            await world.pass_time(60)
        asian, slow, odd = ended
        path = "/admin/queue-dead"

        async def found(**wanted: str) -> list[str]:
            listed = (await client.get(path, params=wanted)).json()["jobs"]
            asked = {"filter": wanted, "preview": True}
            preview = (await client.post(f"{path}/replay", json=asked)).json()
            assert [each["job_id"] for each in preview["would_run"]] == [
                each["job_id"] for each in listed
            ]
            assert preview["count"] == len(listed)
            return [each["job_id"] for each in listed]

        assert await found() == [odd, slow, asian]
        assert await found(region="EU") == [odd, slow]
        assert await found(region="EU", error_code="timeout") == [slow]
        assert await found(error_code="MAX_ATTEMPTS") == [odd, slow, asian]
        assert await found(service="ask") == [odd, slow, asian]
        assert await found(service="as") == []
        died = (await client.get(path)).json()["jobs"][1]["finished_at"]
        assert await found(died_from=died) == [odd, slow]
        assert await found(died_to=died) == [asian]
        (would,) = (
            await client.post(
                f"{path}/replay", json={"filter": {"region": "ASIA"}, "preview": True}
            )
        ).json()["would_run"]
        assert (would["service"], would["regions"], would["runnable"]) == ("ask", ["ASIA"], False)
        assert (await client.post(f"{path}/purge", json={"preview": True})).status_code == 422
        done = await client.post(f"{path}/replay", json={"filter": {"region": "ASIA"}})
        assert done.json() == {"count": 1, "more": False}
        assert await found() == [odd, slow]
