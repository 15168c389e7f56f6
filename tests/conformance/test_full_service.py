"""A service whose line is full takes nobody in, the lowest tier first; others do not notice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from fairlane.clock import seconds
from fairlane.errors import Refused
from fairlane.ledger.messages import SubmissionAccepted, SubmitOutcome
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.tier import Tier, Tiers
from tests.world import World, catalog

ONE = Tiers([Tier("only")])
SETTINGS = Catalog(
    ONE,
    [Service("work", waiting=5), Service("other")],
    pipelines={"long": ("other", "work")},
)


def told(outcomes: list[SubmitOutcome]) -> Counter[str]:
    return Counter(each.code if isinstance(each, Refused) else "accepted" for each in outcomes)


async def test_batches_of_new_users_at_once_do_not_share_the_last_places(tmp_path: Path) -> None:
    """§6: their tiers are looked up in between."""
    async with World(SETTINGS, tmp_path / "ledger.db") as world:
        batches = [[NewJob("work", user=f"{b}-{n}") for n in range(5)] for b in range(6)]
        found = await asyncio.gather(*(world.engine.submit_many(each) for each in batches))
        assert told([each for batch in found for each in batch])["accepted"] == 5


async def test_a_full_service_is_full_until_a_job_starts(tmp_path: Path) -> None:
    """§6: what waits for its time counts, too, and so does each execution of a fan-out."""
    later = seconds(60)
    async with World(SETTINGS, tmp_path / "ledger.db") as world:
        await world.submit(run_at=world.clock.now() + later)
        await world.submit(matrix={"n": ("1", "2")})
        outcomes = await world.engine.submit_many([NewJob("work")] * 9)
        assert told(outcomes) == {"accepted": 2, "queue_full": 7}
        refused = outcomes[-1]
        assert isinstance(refused, Refused)
        assert (refused.limit, refused.left, "work" in str(refused)) == (5, 0, True)
        await world.engine.complete(await world.claim_one())
        await world.submit("other")
        outcomes = await world.engine.submit_many([NewJob("work")] * 2)
        assert told(outcomes) == {"accepted": 1, "queue_full": 1}
        await world.drain()
        assert await world.submit()


async def test_a_known_key_is_answered_though_the_service_is_full(tmp_path: Path) -> None:
    async with World(SETTINGS, tmp_path / "ledger.db") as world:
        first = await world.submit(idempotency_key="k")
        await world.submit_all([NewJob("work")] * 4)
        assert await world.submit(idempotency_key="k") == first
        with pytest.raises(Refused):
            await world.submit(idempotency_key="new")


async def test_a_later_step_is_never_refused(tmp_path: Path) -> None:
    """Who was taken in goes on."""
    async with World(SETTINGS, tmp_path / "ledger.db") as world:
        jobs = [await world.submit("long") for _ in range(8)]
        await world.submit_all([NewJob("work")] * 5)
        for lease in await world.claim(13):
            await world.engine.complete(lease)
        with pytest.raises(Refused):
            await world.submit()
        assert await world.drain() == len(jobs)


ALL = Tiers([Tier("high"), Tier("medium"), Tier("low")])


@pytest.mark.parametrize(
    "settings",
    [
        Catalog(ALL, [Service("work", waiting=8)]),
        Catalog(ALL, [Service("work")], limits=Limits(waiting=8)),
    ],
    ids=["service", "whole queue"],
)
async def test_the_lowest_tier_is_refused_first(settings: Catalog, tmp_path: Path) -> None:
    """§6: half of the line is for everybody, all of it only for the best tier."""
    async with World(settings, tmp_path / "ledger.db") as world:
        for tier, places in (("low", 4), ("medium", 2), ("high", 2)):
            outcomes = await world.engine.submit_many([NewJob("work", tier=tier)] * 5)
            assert told(outcomes) == {"accepted": places, "queue_full": 5 - places}


async def test_how_many_may_wait_is_changed_while_it_runs(tmp_path: Path) -> None:
    async with World(catalog(tiers=ONE), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 3)
        await world.engine.change("services", "work", "waiting", 3)
        with pytest.raises(Refused):
            await world.submit()
        await world.restart()
        with pytest.raises(Refused):
            await world.submit()
        await world.engine.change("services", "work", "waiting", 0)
        assert await world.submit()


@pytest.mark.embedded
async def test_in_one_process_it_is_never_passed(tmp_path: Path) -> None:
    """§6: not by those who come at the same moment, nor does one who went away keep a place."""
    async with World(SETTINGS, tmp_path / "ledger.db") as world:
        asked = [asyncio.create_task(world.engine.submit_many([NewJob("work")])) for _ in range(50)]
        await asyncio.sleep(0)
        asked[0].cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        accepted = [each for each in answers[1:] if isinstance(each[0], SubmissionAccepted)]  # type: ignore[index]
        assert len(accepted) == 4
        assert await world.live() == 5
        await world.drain()
        assert told(await world.engine.submit_many([NewJob("work")] * 6))["accepted"] == 5
