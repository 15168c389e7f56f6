"""What waits for a region, and only there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.service import Region, Service
from fairlane.model.worker import Worker
from tests.api.server import Gateway
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
        assert shown["global_retry"] == shown["services"]["ask"]["retry"] == 1
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
