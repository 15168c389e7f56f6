"""Who is next: promotion by waiting, and oldest first at the same level."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from fairlane.engine.maintenance import announce_promotions
from fairlane.model.attempt import Fault
from fairlane.model.event import EventType
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, Service, Shares
from fairlane.model.worker import Worker
from fairlane.units import SECOND
from tests.conformance.acts import history, run_all
from tests.core import core_of
from tests.world import World, catalog

NAMES = ("high", "medium", "low")
UNCAPPED = Shares(1000, 1000, 1000)
PLAIN = Service("work", fairness=Fairness.NONE, shares=UNCAPPED, max_attempts=50)
FAIR = Service("work", fairness=Fairness.USER, shares=UNCAPPED, max_attempts=50)


@asynccontextmanager
async def world_of(service: Service, path: Path) -> AsyncIterator[World]:
    async with World(catalog(service), path) as world:
        yield world
        await world.healthy()


async def promotions(world: World, job: str) -> list[tuple[str, str]]:
    return [
        (event.data["old"], event.data["new"])
        for event in await history(world, job)
        if event.type is EventType.JOB_PROMOTED
    ]


def level(tier: str, waited: int) -> int:
    """What the tiers of the test world say, written down a second time."""
    waited //= SECOND
    if tier == "high":
        return 0
    if tier == "medium":
        return 0 if waited >= 1200 else 1
    return 0 if waited >= 1800 else 1 if waited >= 600 else 2


# --- I15 --------------------------------------------------------------------------------
async def test_each_level_is_announced_once_when_its_time_has_come(tmp_path: Path) -> None:
    """I15: one event per level, not a second early, however often the sweep looks."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        job = await world.submit(tier="low")
        await world.pass_time(599.999999, sweeps=10)
        assert await promotions(world, job) == []
        await world.pass_time(0.000001, sweeps=20)
        assert await promotions(world, job) == [("low", "medium")]
        first = await world.job(job)
        assert (first.level, first.promoted_at) == ("medium", world.clock.now())
        await world.pass_time(1200, sweeps=20)
        assert await promotions(world, job) == [("low", "medium"), ("medium", "high")]
        assert await run_all(world) == [job]


async def test_levels_that_were_passed_together_are_announced_as_one(tmp_path: Path) -> None:
    """I15: a late sweep says where the job is, not where it has been."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        job = await world.submit(tier="low")
        await world.pass_time(5000, sweeps=10)
        assert await promotions(world, job) == [("low", "high")]


async def test_running_and_finished_jobs_are_not_promoted(tmp_path: Path) -> None:
    """I15: only what is still queued is announced, and running time is no waiting."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        running, done = await world.submit(tier="low"), await world.submit(tier="low")
        await world.pass_time(590)
        (lease, other) = await world.claim(2)
        await world.engine.complete(other)
        for _ in range(20):
            await world.engine.heartbeat(Worker("w"), [lease])
            await world.pass_time(10, sweeps=5)
        names = world.settings.tiers.names
        late = [(job, "high") for job in (running, done)]
        assert (
            await core_of(world.engine).ledger.promote(late, names, world.clock.now()) == [None] * 2
        )
        assert await promotions(world, running) == await promotions(world, done) == []
        await world.engine.give_back(lease)
        await world.pass_time(9, sweeps=5)
        assert await promotions(world, running) == []
        await world.pass_time(1, sweeps=5)
        assert await promotions(world, running) == [("low", "medium")]


async def test_a_retry_is_not_told_its_level_again(tmp_path: Path) -> None:
    """I15: a level is announced once in a job's life, also over a failed attempt and a restart."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        job = await world.submit(tier="low")
        await world.pass_time(700, sweeps=5)
        await world.engine.fail(await world.claim_one())
        await world.pass_time(60, sweeps=10)
        await world.restart()
        await world.pass_time(60, sweeps=10)
        assert await promotions(world, job) == [("low", "medium")]


async def test_a_job_is_never_promoted_to_a_worse_level(tmp_path: Path) -> None:
    """I15: a level it had been told before is not news when its user's clock starts anew."""
    async with world_of(FAIR, tmp_path / "ledger.db") as world:
        job = await world.submit(tier="low", user="ann")
        await world.pass_time(1800, sweeps=5)
        assert await promotions(world, job) == [("low", "high")]
        late, names = [(job, "medium")], world.settings.tiers.names
        assert await core_of(world.engine).ledger.promote(late, names, world.clock.now()) == [None]
        await world.engine.fail(await world.claim_one())
        other = await world.submit(tier="low", user="ann")
        lease = await world.claim_one()
        assert lease.job == other
        await world.engine.complete(lease)
        for wait in (620, 1300):
            world.clock.advance(wait * SECOND)
            assert await world.claim(1, Worker("elsewhere", services=frozenset({"other"}))) == []
            await world.pass_time(0, sweeps=10)
        assert await promotions(world, job) == [("low", "high")]


async def test_a_job_whose_time_has_come_is_promoted_although_nobody_claims(
    tmp_path: Path,
) -> None:
    """I15: waiting counts from its own time, and its owner hears of it also while all are busy."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        job = await world.submit(tier="low", run_at=world.clock.now() + 100 * SECOND)
        await world.pass_time(699, sweeps=10)
        assert await promotions(world, job) == []
        await world.pass_time(1, sweeps=10)
        assert await promotions(world, job) == [("low", "medium")]


@pytest.mark.parametrize("seed", range(4))
async def test_many_promoters_and_claimers_run_every_job_once(tmp_path: Path, seed: int) -> None:
    """I15: promotion duplicates nothing and loses nothing; a promotion falls between a job's
    arrival in line and its start, and each job starts once."""
    dice = random.Random(seed)
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs: list[str] = []
        granted: list[str] = []

        async def claimer(name: str) -> None:
            for lease in await world.engine.claim(Worker(name), dice.randrange(1, 3)):
                granted.append(lease.job)
                await world.engine.complete(lease)

        for _ in range(25):
            new = [NewJob("work", tier=dice.choice(NAMES)) for _ in range(dice.randrange(10))]
            jobs += await world.submit_all(new)
            world.clock.advance(dice.randrange(400) * SECOND)
            acts = [announce_promotions(core) for _ in range(8)]
            if dice.random() < 0.3:
                acts += [claimer(f"w{i}") for i in range(16)]  # type: ignore[misc]
            dice.shuffle(acts)
            await asyncio.gather(*acts)
        granted += await run_all(world, batch=20)
        assert sorted(granted) == sorted(jobs)
        told = 0
        for job in jobs:
            kinds = [event.type for event in await history(world, job)]
            found = await promotions(world, job)
            told += len(found)
            assert len({new for _, new in found}) == len(found)
            assert kinds[0] is EventType.WAITING
            assert kinds[1 : 1 + len(found)] == [EventType.JOB_PROMOTED] * len(found)
            assert kinds.count(EventType.STEP_START) == 1
        assert told > 0


@pytest.mark.parametrize("seed", range(3))
async def test_the_order_is_the_same_whether_promotions_are_announced_or_not(
    tmp_path: Path, seed: int
) -> None:
    """I15: the order never depends on the announcement."""

    async def order(name: str, *, announce: bool) -> list[int]:
        dice = random.Random(seed)
        async with world_of(PLAIN, tmp_path / name) as world:
            jobs: list[str] = []
            granted: list[str] = []
            for _ in range(40):
                jobs.append(await world.submit(tier=dice.choice(NAMES)))
                world.clock.advance(dice.randrange(120) * SECOND)
                if announce:
                    await announce_promotions(core_of(world.engine))
                if dice.random() < 0.4:
                    lease = await world.claim_one()
                    granted.append(lease.job)
                    await world.engine.complete(lease)
            granted += await run_all(world)
            return [jobs.index(job) for job in granted]

    assert await order("told", announce=True) == await order("untold", announce=False)


async def test_a_job_counts_as_its_level_from_the_very_moment(tmp_path: Path) -> None:
    """I15: computed at claim time, so without any sweep, to the microsecond."""
    for early, first in ((1, "medium"), (0, "low")):
        async with world_of(PLAIN, tmp_path / f"{early}.db") as world:
            await world.submit(tier="low")
            world.clock.advance(600 * SECOND - early)
            await world.submit(tier="medium")
            assert (await world.claim_one()).tier == first


# --- I16 --------------------------------------------------------------------------------
class Waiter(NamedTuple):
    job: str
    number: int
    tier: str
    user: str
    ready_at: int
    waited: int = 0

    @property
    def since(self) -> int:
        """When it would have come had it waited in one piece."""
        return self.ready_at - self.waited


class Watch:
    """Counts grants that went before an earlier job of the same level."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: dict[str, Waiter] = {}
        self.running: dict[str, Waiter] = {}
        self.numbers: dict[str, int] = {}
        self.inversions: list[tuple[Waiter, Waiter]] = []
        self.grants = 0
        self.across = 0

    async def submit(self, tier: str, user: str) -> None:
        job = await self.world.submit(tier=tier, user=user)
        self.numbers[job] = len(self.numbers)
        now = self.world.clock.now()
        self.waiting[job] = Waiter(job, self.numbers[job], tier, user, now)

    def granted(self, lease: Lease, *, per_user: bool) -> None:
        now = self.world.clock.now()
        mine = self.waiting.pop(lease.job)
        self.running[lease.job] = mine._replace(waited=mine.waited + now - mine.ready_at)
        self.grants += 1
        reached = level(mine.tier, now - mine.since)
        for other in self.waiting.values():
            if per_user and (other.user, other.tier) != (mine.user, mine.tier):
                continue
            if other.ready_at > now:
                continue
            if level(other.tier, now - other.since) != reached:
                continue
            self.across += other.tier != mine.tier
            tied = other.since == mine.since and other.tier == mine.tier
            if other.since < mine.since or (tied and other.number < mine.number):
                self.inversions.append((mine, other))

    async def back_in_line(self, lease: Lease) -> None:
        """A retry stands where its waiting has brought it."""
        ready_at = (await self.world.job(lease.job)).ready_at
        self.waiting[lease.job] = self.running[lease.job]._replace(ready_at=ready_at)


async def workload(
    world: World, dice: random.Random, tiers: tuple[str, ...], *, per_user: bool, failing: float
) -> Watch:
    watch = Watch(world)
    for _ in range(70):
        for _ in range(dice.randrange(4)):
            await watch.submit(dice.choice(tiers), dice.choice("abc"))
        world.clock.advance(dice.randrange(90 * SECOND))
        wanted = dice.randrange(1, 4) if dice.random() < 0.65 else 0
        for lease in await world.claim(wanted) if wanted else []:
            watch.granted(lease, per_user=per_user)
            if dice.random() < failing:
                await world.engine.fail(lease, Fault.TRANSIENT)
                await watch.back_in_line(lease)
            else:
                await world.engine.complete(lease)
    return watch


@pytest.mark.parametrize("seed", range(3))
async def test_at_one_level_the_earlier_job_is_granted_first(tmp_path: Path, seed: int) -> None:
    """I16: one tier, fairness off, random arrivals and batches: no inversion."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        dice = random.Random(seed)
        watch = await workload(world, dice, ("medium",), per_user=False, failing=0)
        assert watch.grants > 50
        assert watch.inversions == []


@pytest.mark.parametrize("seed", range(3))
async def test_tiers_that_have_met_at_one_level_go_by_age(tmp_path: Path, seed: int) -> None:
    """I16: a promoted job and one born to the level: the earlier one goes first."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        dice = random.Random(seed)
        watch = await workload(world, dice, NAMES, per_user=False, failing=0)
        assert watch.across > 20
        assert watch.inversions == []


@pytest.mark.parametrize("seed", range(3))
async def test_one_users_jobs_go_in_the_order_they_came(tmp_path: Path, seed: int) -> None:
    """I16: fairness by user shuffles users, never one user's own jobs."""
    async with world_of(FAIR, tmp_path / "ledger.db") as world:
        dice = random.Random(seed)
        watch = await workload(world, dice, NAMES, per_user=True, failing=0)
        assert watch.grants > 50
        assert watch.inversions == []


@pytest.mark.parametrize("seed", range(3))
async def test_retries_among_others_keep_the_place_they_had_earned(
    tmp_path: Path, seed: int
) -> None:
    """I16: with failures and back-off, a retry stands where its waiting has brought it."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        dice = random.Random(seed)
        watch = await workload(world, dice, NAMES, per_user=False, failing=0.3)
        assert watch.grants > 50
        assert watch.inversions == []


async def test_a_retry_goes_before_those_who_came_after_it(tmp_path: Path) -> None:
    """I16: it had waited longest, so after its back-off it is first again."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        jobs = []
        for _ in range(4):
            jobs.append(await world.submit())
            world.clock.advance(10 * SECOND)
        lease = await world.claim_one()
        assert lease.job == jobs[0]
        await world.engine.fail(lease)
        (second,) = await world.claim()
        assert second.job == jobs[1]
        await world.engine.give_back(second)
        world.clock.advance(2 * SECOND)
        assert await run_all(world) == jobs


async def test_a_job_given_back_is_the_next_again(tmp_path: Path) -> None:
    """I16: giving back costs no place."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        first = await world.submit()
        world.clock.advance(SECOND)
        second = await world.submit()
        world.clock.advance(SECOND)
        await world.engine.give_back(await world.claim_one())
        assert await run_all(world) == [first, second]


async def test_a_delayed_job_counts_from_the_time_it_asked_for(tmp_path: Path) -> None:
    """I16: it is enqueued at its time, not when it was announced."""
    async with world_of(PLAIN, tmp_path / "ledger.db") as world:
        later = await world.submit(run_at=world.clock.now() + 100 * SECOND)
        world.clock.advance(50 * SECOND)
        before = await world.submit()
        world.clock.advance(50 * SECOND - 1)
        assert (await world.claim_one()).job == before
        assert await world.claim() == []
        meanwhile = await world.submit()
        world.clock.advance(2)
        after = await world.submit()
        assert await run_all(world) == [meanwhile, later, after]
