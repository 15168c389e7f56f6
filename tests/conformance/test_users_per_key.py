"""A key names at most so many users in an hour (S8)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairlane.clock import seconds
from fairlane.engine.submit import Caller
from fairlane.errors import FairlaneError, InvalidInput, Refused
from fairlane.ledger.messages import SubmitOutcome
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.job import NewJob
from fairlane.model.tier import Tier, Tiers
from tests.core import core_of
from tests.world import World, catalog

LIMIT = 20
KEY = Caller("acme", "key")
OTHER_KEY = Caller("acme", "other")
OTHER_TENANT = Caller("evil", "key")


def limited(users: int = LIMIT, **tier: float) -> Catalog:
    tiers = Tiers([Tier("only", **tier)])  # type: ignore[arg-type]
    return catalog(tiers=tiers, limits=Limits(users_per_key=users))


def of_users(*numbers: int) -> list[NewJob]:
    return [NewJob("work", user=f"u{n}") for n in numbers]


async def all_at_once(
    world: World, jobs: Sequence[NewJob], caller: Caller = KEY
) -> list[SubmitOutcome]:
    """Each job in a call of its own, all calls under way together."""

    async def one(job: NewJob) -> SubmitOutcome:
        try:
            return await world.engine.submit(job, caller)
        except FairlaneError as error:
            return error

    return await asyncio.gather(*map(one, jobs))


def tally(answers: Sequence[SubmitOutcome]) -> Counter[str]:
    return Counter(
        answer.code if isinstance(answer, FairlaneError) else "accepted" for answer in answers
    )


async def test_two_hundred_users_at_once_fill_twenty_places_exactly(tmp_path: Path) -> None:
    """S8: 20 users get in, 180 are told which limit, what is left and when it frees; those who are
    in submit again, also after a restart."""
    async with World(limited(), tmp_path / "ledger.db") as world:
        answers = await all_at_once(world, of_users(*range(200)))
        assert tally(answers) == {"accepted": LIMIT, "too_many_users": 180}
        told = {
            (each.setting, each.tier, each.limit, each.left, each.frees_at)
            for each in answers
            if isinstance(each, Refused)
        }
        free = world.clock.now() + seconds(3600)
        assert told == {("limits.users_per_key", "only", LIMIT, 0, free)}
        inside = [n for n, each in enumerate(answers) if not isinstance(each, FairlaneError)]
        for _ in range(2):
            assert tally(await all_at_once(world, of_users(*inside))) == {"accepted": LIMIT}
            assert tally(await all_at_once(world, of_users(500))) == {"too_many_users": 1}
            await world.restart()


async def test_a_batch_is_cut_at_the_limit(tmp_path: Path) -> None:
    """S8: in the order of the batch; every job of a counted user is accepted."""
    async with World(limited(3), tmp_path / "ledger.db") as world:
        jobs = of_users(0, 1, 0, 2, 3, 4, 2, 3)
        answers = await world.engine.submit_many(jobs, KEY)
        refused = [job.user for job, each in zip(jobs, answers, strict=True) if is_refused(each)]
        assert refused == ["u3", "u4", "u3"]


async def test_each_user_counts_for_an_hour_from_the_first_submit(tmp_path: Path) -> None:
    """S8: a later submit does not prolong it, and `frees_at` is the second it is over."""
    async with World(limited(2), tmp_path / "ledger.db") as world:
        start = world.clock.now()
        await all_at_once(world, of_users(1))
        world.clock.advance(seconds(1800))
        assert tally(await all_at_once(world, of_users(1, 2)))["accepted"] == 2
        (refused,) = await all_at_once(world, of_users(3))
        assert isinstance(refused, Refused)
        assert refused.frees_at == start + seconds(3600)
        world.clock.advance(seconds(1799))
        assert tally(await all_at_once(world, of_users(3))) == {"too_many_users": 1}
        world.clock.advance(seconds(1))
        assert tally(await all_at_once(world, of_users(3, 4))) == {
            "accepted": 1,
            "too_many_users": 1,
        }


@pytest.mark.parametrize("swept", [False, True], ids=["unswept", "swept"])
async def test_users_who_come_back_after_their_hour_are_counted_again(
    tmp_path: Path, swept: bool
) -> None:
    """S8: also when the rows of their last hour are deleted in between."""
    async with World(limited(3), tmp_path / "ledger.db") as world:
        for _ in range(3):
            assert tally(await all_at_once(world, of_users(1, 2, 3)))["accepted"] == 3
            assert tally(await all_at_once(world, of_users(4))) == {"too_many_users": 1}
            world.clock.advance(seconds(3600))
            if swept:
                await core_of(world.engine).ledger.forget_key_users(world.clock.now())
            assert tally(await all_at_once(world, of_users(3, 5))) == {"accepted": 2}
            assert tally(await all_at_once(world, of_users(1, 2)))["accepted"] == 1
            world.clock.advance(seconds(3600))


async def test_a_sweep_removes_only_users_who_no_longer_count(tmp_path: Path) -> None:
    async with World(limited(2), tmp_path / "ledger.db") as world:
        await all_at_once(world, of_users(1))
        world.clock.advance(seconds(1800))
        await all_at_once(world, of_users(2))
        world.clock.advance(seconds(1800))
        await core_of(world.engine).ledger.forget_key_users(world.clock.now())
        await world.restart()
        assert tally(await all_at_once(world, of_users(2, 3, 4)))["accepted"] == 2


async def test_keys_and_tenants_have_users_of_their_own(tmp_path: Path) -> None:
    """S8: the limit is a key's; the same key id of another tenant is another key."""
    async with World(limited(2), tmp_path / "ledger.db") as world:
        for caller in (KEY, OTHER_KEY, OTHER_TENANT):
            assert tally(await all_at_once(world, of_users(1, 2, 3), caller))["accepted"] == 2


async def test_jobs_without_a_user_and_callers_in_the_process_do_not_count(tmp_path: Path) -> None:
    async with World(limited(1), tmp_path / "ledger.db") as world:
        assert tally(await all_at_once(world, [NewJob("work")] * 3)) == {"accepted": 3}
        assert tally(await all_at_once(world, of_users(1, 2, 3), Caller())) == {"accepted": 3}


async def test_no_limit_counts_no_users(tmp_path: Path) -> None:
    async with World(limited(0), tmp_path / "ledger.db") as world:
        assert tally(await all_at_once(world, of_users(*range(50)))) == {"accepted": 50}


async def test_a_known_idempotency_key_is_answered_although_its_user_no_longer_counts(
    tmp_path: Path,
) -> None:
    """S8, I12: the job exists; the repeated request hears of it."""
    async with World(limited(1), tmp_path / "ledger.db") as world:
        job = NewJob("work", user="u1", idempotency_key="k")
        first = await world.engine.submit(job, KEY)
        world.clock.advance(seconds(3600))
        await world.engine.submit(NewJob("work", user="u2"), KEY)
        again = await world.engine.submit(job, KEY)
        assert again.job == first.job


async def test_requests_that_can_never_be_accepted_count_nobody(tmp_path: Path) -> None:
    """S8: neither an invalid one nor one whose duration is too long for its tier."""
    async with World(limited(1, max_duration=30), tmp_path / "ledger.db") as world:
        with pytest.raises(Refused, match="duration"):
            await world.submit(caller=KEY, user="u1", duration=60)
        with pytest.raises(InvalidInput):
            await world.submit(caller=KEY, user="u2", model="a|b")
        assert await world.submit(caller=KEY, user="u3")


async def test_a_lower_limit_lets_nobody_in_until_enough_hours_are_over(tmp_path: Path) -> None:
    """S8: five users count, then the limit is 2: the fourth hour to end frees the next place."""
    async with World(limited(5), tmp_path / "ledger.db") as world:
        start = world.clock.now()
        for n in range(5):
            await all_at_once(world, of_users(n))
            world.clock.advance(seconds(60))
        world.settings = limited(2)
        await world.restart()
        (refused,) = await all_at_once(world, of_users(9))
        assert isinstance(refused, Refused)
        assert refused.frees_at == start + seconds(3600 + 3 * 60)
        world.clock.advance(refused.frees_at - world.clock.now())
        assert tally(await all_at_once(world, of_users(9, 10)))["accepted"] == 1


async def test_a_clock_that_goes_back_still_tells_when_a_place_frees(tmp_path: Path) -> None:
    """S8: users 2, 3 and 4 count again from the second hour on, so that fewer users count in the
    first hour than their numbers say."""
    async with World(limited(), tmp_path / "ledger.db") as world:
        ledger, hour, now = core_of(world.engine).ledger, seconds(3600), world.clock.now()
        await ledger.count_users("acme", "key", ["u1", "u2", "u3", "u4"], 9, now)
        await ledger.count_users("acme", "key", ["u2", "u3", "u4"], 9, now + hour)
        refused = await ledger.count_users("acme", "key", ["u5"], 1, now + hour - 1)
        assert refused == ({}, now + 2 * hour)


def is_refused(outcome: SubmitOutcome) -> bool:
    return isinstance(outcome, Refused)
