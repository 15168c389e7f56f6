"""A queue that is full: when to come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.model.catalog import Catalog, Limits
from fairlane.model.service import Service
from tests.api.server import gateway
from tests.world import TIERS, World

MOST = 40


@pytest.mark.parametrize(("limit", "seconds"), [(1, 40), (4, 10), (100, 1)])
async def test_who_finds_it_full_is_told_to_come_back_when_it_would_be_empty(
    tmp_path: Path, limit: int, seconds: int
) -> None:
    """A job takes a second as long as nothing else is known."""
    settings = Catalog(TIERS, [Service("work", limit=limit)], limits=Limits(waiting=MOST))
    async with (
        World(settings, tmp_path / "ledger.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        jobs = {"jobs": [{"service": "work", "priority": "high"}] * MOST}
        assert (await client.post("/api/v1/jobs:batch", json=jobs)).status_code == 200
        told = []
        for _ in range(20):
            wish = {"service": "work", "priority": "high"}
            refused = await client.post("/api/v1/jobs", json=wish)
            assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
            told.append(int(refused.headers["retry-after"]))
    assert all(max(1, 0.8 * seconds - 1) <= each <= 1.2 * seconds + 1 for each in told)
    assert seconds == 1 or len(set(told)) > 1, "not all at once"


async def test_who_finds_a_service_full_is_told_when_that_one_would_be_empty(
    tmp_path: Path,
) -> None:
    """What other services can do does not help. It can be changed while it runs."""
    settings = Catalog(TIERS, [Service("work", limit=1), Service("other", limit=1000)])
    async with (
        World(settings, tmp_path / "ledger.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        changed = await client.put("/admin/services/work", json={"waiting": MOST})
        assert changed.json()["waiting"] == MOST
        jobs = {"jobs": [{"service": "work", "priority": "high"}] * MOST}
        assert (await client.post("/api/v1/jobs:batch", json=jobs)).status_code == 200
        refused = await client.post("/api/v1/jobs", json={"service": "work"})
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
        assert 0.8 * MOST - 1 <= int(refused.headers["retry-after"]) <= 1.2 * MOST + 1
        assert (await client.post("/api/v1/jobs", json={"service": "other"})).status_code == 202
