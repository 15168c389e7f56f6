"""Limits hold always (I7), a release frees what it took and no more (I9), nothing leaks (I10), and
limits may change while everything runs (I11)."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from fairlane.clock import seconds
from fairlane.engine.reconciler import reconcile
from fairlane.engine.settle import Done, Failed, GivenBack, Report
from fairlane.errors import StaleLease, WrongState
from fairlane.index.index import Freed
from fairlane.ledger.messages import Confirmation, Unconfirmed
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease, Slot
from fairlane.model.service import (
    Executor,
    Fairness,
    Overrun,
    Provider,
    Region,
    Service,
    user_pool,
)
from fairlane.model.state import State
from fairlane.model.worker import Worker
from tests.core import core_of
from tests.ledger_items import confirmation
from tests.world import World, catalog

CLAIMERS = 64


def one_service(limit: int, **settings: object) -> Catalog:
    return catalog(Service("work", fairness=Fairness.NONE, limit=limit, **settings))  # type: ignore[arg-type]


def three_pools(limit: int, overrun: Overrun = Overrun.FAST) -> Catalog:
    """A service limited as a whole, in each region, and together with another by its provider."""
    paint = Service(
        "paint",
        executor=Executor.HTTP,
        limit=limit,
        provider="cloud",
        regions={"EU": Region("EU", limit=1), "US": Region("US", limit=limit)},
        timeout=60,
        overrun=overrun,
        fairness=Fairness.NONE,
    )
    sing = Service("sing", limit=limit, provider="cloud", overrun=overrun, fairness=Fairness.NONE)
    return catalog(paint, sing, providers=[Provider("cloud", limit=limit)])


def limits_of(settings: Catalog) -> dict[str, int]:
    return {pool.name: pool.limit for pool in settings.all_pools().values()}


class Endpoint:
    """Counts the calls under way in every pool, as whoever is called would."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.limits = limits
        self.calls: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.was_full = asyncio.Event()

    def begin(self, lease: Lease) -> None:
        for pool in self._pools(lease):
            self.calls[pool] += 1
            self.most[pool] = max(self.most[pool], self.calls[pool])
            assert self.calls[pool] <= self.limits[pool], f"{pool}: {self.calls}"
        if self.calls["prov:cloud"] == self.limits["prov:cloud"]:
            self.was_full.set()

    def end(self, lease: Lease) -> None:
        for pool in self._pools(lease):
            self.calls[pool] -= 1

    def _pools(self, lease: Lease) -> list[str]:
        names = [f"svc:{lease.service}", f"svc:{lease.service}@{lease.region}", "prov:cloud"]
        return [name for name in names if name in self.limits]


# --- I7: granted slots ≤ limit --------------------------------------------------------------------
@pytest.mark.parametrize("limit", [1, 4])
async def test_sixty_four_claimers_never_go_beyond_any_of_three_limits(
    tmp_path: Path, limit: int
) -> None:
    """I7: service, region and provider, while the index is rebuilt again and again; the limit is
    reached and never passed."""
    settings = three_pools(limit)
    endpoint = Endpoint(limits_of(settings))
    dice = random.Random(limit)
    left = 60
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob(dice.choice(["paint", "sing"])) for _ in range(left)])

        async def claimer(worker: Worker) -> None:
            nonlocal left
            while left:
                for lease in await world.engine.claim(worker, 1, wait=5):
                    endpoint.begin(lease)
                    await endpoint.was_full.wait()  # the first ones, until all places are taken
                    for _ in range(dice.randrange(4)):
                        await world.job(lease.job)  # as long as a store takes to answer
                    endpoint.end(lease)
                    if dice.random() < 0.1:
                        await world.engine.give_back(lease)
                    else:
                        await world.engine.complete(lease)
                        left -= 1

        regions = ("EU", "US", None)
        workers = [Worker(f"w{n}", region=regions[n % 3]) for n in range(CLAIMERS)]
        claimers = asyncio.gather(*map(claimer, workers))
        while not claimers.done():
            await nothing_above(world, endpoint.limits)
            await world.engine.rebuild()
            world.clock.advance(seconds(1))
        await claimers
        assert endpoint.most["prov:cloud"] == limit
        assert await core_of(world.engine).ledger.slots() == []
        await world.healthy()


@pytest.mark.parametrize("limit", [1, 4])
async def test_claims_that_arrive_together_share_exactly_the_limit(
    tmp_path: Path, limit: int
) -> None:
    """I7: 64 claims of many jobs each at the same moment are granted the limit, no less."""
    async with World(one_service(limit), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 100)
        workers = [Worker(f"w{n}") for n in range(CLAIMERS)]
        for _ in range(5):
            answers = await asyncio.gather(*(world.claim(10, worker) for worker in workers))
            leases = [lease for answer in answers for lease in answer]
            assert len(leases) == limit
            assert len(await core_of(world.engine).ledger.slots("svc:work")) == limit
            await world.engine.settle([Done(lease) for lease in leases])


async def test_a_step_takes_a_slot_in_every_pool_or_none(tmp_path: Path) -> None:
    """I7: where one pool is full, the others give nothing away."""
    async with World(three_pools(4), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("paint")] * 4)
        eu, us = Worker("eu", region="EU"), Worker("us", region="US")
        assert len(await world.claim(4, eu)) == 1
        assert await held(world) == {"svc:paint": 1, "svc:paint@EU": 1, "prov:cloud": 1}
        assert await world.claim(4, eu) == []
        assert await held(world) == {"svc:paint": 1, "svc:paint@EU": 1, "prov:cloud": 1}
        assert len(await world.claim(4, us)) == 3
        assert (await held(world))["prov:cloud"] == 4


FORGED: dict[str, list[Slot]] = {
    "above the limit": [Slot("svc:paint", 5), Slot("svc:paint@US", 2), Slot("prov:cloud", 2)],
    "one above the limit": [Slot("svc:paint", 2), Slot("svc:paint@US", 5), Slot("prov:cloud", 2)],
    "far above": [Slot("svc:paint", 2), Slot("svc:paint@US", 2), Slot("prov:cloud", 1 << 40)],
    "taken": [Slot("svc:paint", 2), Slot("svc:paint@US", 2), Slot("prov:cloud", 1)],
    "zero": [Slot("svc:paint", 0), Slot("svc:paint@US", 2), Slot("prov:cloud", 2)],
    "negative": [Slot("svc:paint", 2), Slot("svc:paint@US", 2), Slot("prov:cloud", -1)],
    "none": [],
    "one left out": [Slot("svc:paint", 2), Slot("svc:paint@US", 2)],
    "another pool": [Slot("svc:paint", 2), Slot("svc:paint@EU", 1), Slot("prov:cloud", 2)],
    "one too many": [
        Slot("svc:paint", 2),
        Slot("svc:paint@US", 2),
        Slot("prov:cloud", 2),
        Slot("svc:sing", 1),
    ],
    "twice in one pool": [
        Slot("svc:paint", 2),
        Slot("svc:paint", 3),
        Slot("svc:paint@US", 2),
        Slot("prov:cloud", 2),
    ],
}


@pytest.mark.parametrize("slots", FORGED.values(), ids=FORGED.keys())
async def test_a_forged_proposal_is_refused_as_a_whole_and_harms_no_other(
    tmp_path: Path, slots: list[Slot]
) -> None:
    """I7: no slot of it is kept, its job stays in line, and an honest claim in the same batch is
    granted."""
    async with World(three_pools(4), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("paint")] * 3)
        ledger = core_of(world.engine).ledger
        holder, forged, honest = [
            confirmation(world, await world.job(job), number, region="US")
            for job, number in zip(jobs, (slots_numbered(1), slots, slots_numbered(3)), strict=True)
        ]
        await ledger.confirm([holder])
        refused, granted = (await ledger.confirm([forged, honest])).outcomes
        assert isinstance(refused, Unconfirmed)
        assert isinstance(granted, Lease)
        assert {row.token for row in await ledger.slots()} == {holder.token, honest.token}
        assert (await world.job(forged.job)).state is State.QUEUED
        assert isinstance((await ledger.confirm([forged])).outcomes[0], Unconfirmed)


async def test_a_storm_of_forged_numbers_fills_the_pool_and_no_more(tmp_path: Path) -> None:
    """I7: any numbers from any index at once: never more than the limit."""
    dice = random.Random(7)
    limit = 4
    async with World(one_service(limit), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work")] * CLAIMERS)
        ledger = core_of(world.engine).ledger
        items = [
            confirmation(world, await world.job(job), [Slot("svc:work", dice.randrange(1, 9))])
            for job in jobs
        ]
        answers = await asyncio.gather(*(ledger.confirm([item]) for item in items))
        granted = [a.outcomes[0] for a in answers if isinstance(a.outcomes[0], Lease)]
        assert len(granted) == limit
        assert await running(world) == {"work": limit}
        await nothing_above(world, {"svc:work": limit})
        await world.healthy()


async def test_a_forged_number_gets_a_user_nothing_above_the_cap(tmp_path: Path) -> None:
    """I7: a user's cap is no pool of the settings, and holds like one; in every size of batch."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work", user="ada")] * 4)
        ledger = core_of(world.engine).ledger
        first, second, above, taken = [
            under_a_cap(confirmation(world, await world.job(job)), n, cap=2)
            for job, n in zip(jobs, (1, 2, 3, 1), strict=True)
        ]
        assert isinstance((await ledger.confirm([above])).outcomes[0], Unconfirmed)
        outcomes = (await ledger.confirm([first, above, second])).outcomes
        assert [type(outcome) for outcome in outcomes] == [Lease, Unconfirmed, Lease]
        outcomes = (await ledger.confirm([taken, above])).outcomes
        assert [type(outcome) for outcome in outcomes] == [Unconfirmed, Unconfirmed]
        assert await running(world) == {"work": 2}


async def test_an_index_that_missed_a_lowered_cap_gets_no_slot(tmp_path: Path) -> None:
    """I7: a number within a user's new cap is refused while as many are held above it."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work", user="ada")] * 2)
        ledger = core_of(world.engine).ledger
        before, after = [
            under_a_cap(confirmation(world, await world.job(job)), n, cap)
            for job, n, cap in zip(jobs, (2, 1), (2, 1), strict=True)
        ]
        (lease,) = (await ledger.confirm([before])).outcomes
        assert isinstance(lease, Lease)
        assert isinstance((await ledger.confirm([after])).outcomes[0], Unconfirmed)
        await world.engine.complete(lease)
        assert isinstance((await ledger.confirm([after])).outcomes[0], Lease)


async def test_a_slot_does_not_end_before_its_lease_whatever_the_index_says(
    tmp_path: Path,
) -> None:
    """I7: a proposal that says its slot frees itself soon gives no second job the place."""
    async with World(one_service(1), tmp_path / "ledger.db") as world:
        job, _ = await world.submit_all([NewJob("work")] * 2)
        soon = world.clock.now() + 1
        item = confirmation(world, await world.job(job), [Slot("svc:work", 1, soon)])
        await core_of(world.engine).ledger.confirm([item])
        await world.pass_time(2)
        await world.engine.rebuild()
        await world.claim(2)
        assert (await running(world))["work"] <= 1


@pytest.mark.parametrize("how", ["vanished", "cancelled"])
async def test_a_strict_slot_stays_taken_until_the_deadline_of_its_call(
    tmp_path: Path, how: str
) -> None:
    """I7: the worker is gone, its call may not be: no other call in any of its pools until then,
    also through a rebuild and a restart."""
    async with World(three_pools(1, Overrun.STRICT), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("paint"), NewJob("paint"), NewJob("sing")])
        eu = Worker("eu", region="EU")
        lease = await world.claim_one(eu)
        if how == "cancelled":
            await world.engine.cancel(lease.job)
        pools = {"svc:paint": 1, "svc:paint@EU": 1, "prov:cloud": 1}
        for after in (16, 20):
            await world.pass_time(after)
            assert (await world.job(lease.job)).state is not State.RUNNING
            assert (await held(world), await world.claim(3, eu)) == (pools, [])
            await world.engine.rebuild()
            assert (await held(world), await world.claim(3, eu)) == (pools, [])
            await world.restart()
            assert (await held(world), await world.claim(3, eu)) == (pools, [])
        await world.pass_time(23)
        assert await world.claim(3, eu) == []
        await world.pass_time(1)
        assert len(await world.claim(3, eu)) == 1


async def test_what_is_given_back_keeps_a_strict_slot_while_its_call_may_run(
    tmp_path: Path,
) -> None:
    """The job is back in line at once, at no cost; its slot is free when the call must be over."""
    strict = Service("work", limit=1, timeout=60, overrun=Overrun.STRICT, fairness=Fairness.NONE)
    fast = dataclasses.replace(strict, name="loose", overrun=Overrun.FAST)
    async with World(catalog(strict, fast), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work"), NewJob("loose")])
        for lease in await world.claim(2):
            await world.engine.give_back(lease, closed=False)
        (again,) = await world.claim(2)
        assert (again.service, again.attempt) == ("loose", 1)
        await world.engine.complete(again)
        await world.restart()
        assert not await world.claim()
        await world.pass_time(61)
        assert (await world.claim_one()).attempt == 1
        await world.healthy()


async def test_a_fast_slot_is_free_with_the_lease(tmp_path: Path) -> None:
    """I7: where overruns are allowed, capacity is back as soon as the worker is given up."""
    async with World(three_pools(1, Overrun.FAST), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("paint"), NewJob("paint")])
        eu = Worker("eu", region="EU")
        lost = await world.claim_one(eu)
        assert await world.claim(1, eu) == []
        await world.pass_time(16)
        assert (await world.claim_one(eu)).job != lost.job


async def test_what_a_restart_finds_running_still_holds_its_slots(tmp_path: Path) -> None:
    """I7: a new life of the process grants only what the last one left free."""
    async with World(one_service(4), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 10)
        before = await world.claim(3)
        await world.restart()
        after = await world.claim(10)
        assert (len(before), len(after)) == (3, 1)
        await world.engine.settle([Done(lease) for lease in before])
        assert len(await world.claim(10)) == 3


# --- I9: a release frees what it took, once -------------------------------------------------------
async def test_a_second_release_does_not_free_the_next_ones_slot(tmp_path: Path) -> None:
    """I9: whatever the first worker says again, the second keeps the only slot."""
    async with World(one_service(1), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 3)
        first = await world.claim_one()
        await world.engine.complete(first)
        second = await world.claim_one()
        await say_everything_again(world, first)
        await only_holder(world, second)
        await world.engine.complete(second)
        assert len(await world.claim(3)) == 1


@pytest.mark.parametrize("jobs", [1, 2])
async def test_a_late_release_of_a_lost_lease_frees_nothing_of_the_next(
    tmp_path: Path, jobs: int
) -> None:
    """I9: the slot went with the lease to somebody else, and stays there; also if that one runs
    the same job."""
    async with World(one_service(1), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * jobs)
        lost = await world.claim_one(Worker("lost"))
        await world.pass_time(16)
        await world.pass_time(3)
        second = await world.claim_one(Worker("second"))
        await say_everything_again(world, lost)
        await only_holder(world, second)


@pytest.mark.parametrize("after", ["nothing", "a rebuild", "a restart"])
async def test_a_late_release_of_a_strict_overrun_frees_its_slot_at_once_and_only_once(
    tmp_path: Path, after: str
) -> None:
    """I9: who really closed the call gives its slots back before the deadline, whatever became of
    the index meanwhile; the second time they belong to another."""
    async with World(three_pools(1, Overrun.STRICT), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("paint")] * 2)
        lost = await world.claim_one(Worker("lost", region="EU"))
        await world.pass_time(16)
        assert await world.claim(1, Worker("second", region="EU")) == []
        if after == "a rebuild":
            await world.engine.rebuild()
        elif after == "a restart":
            await world.restart()
        with pytest.raises(StaleLease):
            await world.engine.complete(lost)
        assert await held(world) == {}
        second = await world.claim_one(Worker("second", region="EU"))
        await say_everything_again(world, lost)
        rows = await core_of(world.engine).ledger.slots()
        assert [row.token for row in rows] == [second.token] * 3
        assert await world.claim(1, Worker("third", region="EU")) == []


async def test_a_cancelled_call_frees_its_slot_when_its_worker_says_so_and_only_once(
    tmp_path: Path,
) -> None:
    """I9: cancel, then the worker confirms twice."""
    async with World(one_service(1, overrun=Overrun.STRICT), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 2)
        first = await world.claim_one()
        await world.engine.cancel(first.job)
        assert await world.claim() == []
        with pytest.raises(StaleLease):
            await world.engine.complete(first)
        second = await world.claim_one()
        await say_everything_again(world, first)
        await only_holder(world, second)


async def test_an_index_told_twice_that_a_lease_has_ended_proposes_no_slot_twice(
    tmp_path: Path,
) -> None:
    """I9: free is bound to the token, in the index too; unknown tokens free nothing."""
    async with World(one_service(2), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 6)
        first = await world.claim_one()
        await world.engine.complete(first)
        assert len(await world.claim(6)) == 2
        index = core_of(world.engine).index
        await index.free([Freed(first.token), Freed("f" * 32)] * 3, world.clock.now())
        await index.drop([first.token, "f" * 32], world.clock.now())
        (pool,) = (await index.stats()).pools
        assert (pool.limit, pool.held) == (2, 2)
        assert await world.claim(6) == []


async def test_after_any_number_of_double_and_late_releases_exactly_the_limit_is_free(
    tmp_path: Path,
) -> None:
    """I9: all leases of twenty rounds are released three times each, in any order and at once."""
    dice = random.Random(9)
    limit = 4
    async with World(one_service(limit), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 100)
        ended: list[Lease] = []
        for _ in range(20):
            leases = await world.claim(100)
            assert len(leases) == limit
            ended += leases
            reports = [report for lease in leases for report in [Done(lease)] * 3]
            late = [any_report(lease, dice) for lease in dice.sample(ended, min(8, len(ended)))]
            reports += [report for report in late if report.lease not in leases]  # type: ignore[misc]
            dice.shuffle(reports)
            await asyncio.gather(*(world.engine.settle([report]) for report in reports))
            assert await held(world) == {}
        assert len(await world.claim(100)) == limit


# --- I10: nothing leaks ---------------------------------------------------------------------------
@pytest.mark.parametrize("overrun", [Overrun.FAST, Overrun.STRICT])
@pytest.mark.parametrize("seed", range(2))
async def test_after_everything_that_can_happen_no_slot_is_held(
    tmp_path: Path, seed: int, overrun: Overrun
) -> None:
    """I10: done, failed, given back, cancelled, vanished, rebuilt, restarted, limits changed; then
    quiet: nothing is held anywhere, and the whole capacity is there."""
    dice = random.Random(seed)
    settings = three_pools(4, overrun)
    regions = ("EU", "US")
    workers = [Worker(f"w{n}", region=regions[n % 2]) for n in range(8)]
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob(dice.choice(["paint", "sing"])) for _ in range(60)])
        leases: list[Lease] = []
        for _ in range(40):
            leases += await world.claim(dice.randrange(1, 4), dice.choice(workers))
            await nothing_above(world, limits_of(settings))
            leases = await something_happens(world, leases, dice)
            await world.pass_time(dice.choice([0, 1, 5]))
        await set_limits(world, 4)
        await world.drain(*workers)
        await world.pass_time(3600, sweeps=60)  # every call that was not closed must be over
        await quiet(world)
        assert await reconcile(core_of(world.engine)) == 0
        await world.submit_all([NewJob("paint")] * 9)
        claimed = [await world.claim(9, Worker(name, region=name)) for name in regions]
        assert [len(each) for each in claimed] == [1, 3]


async def test_callers_that_go_away_in_the_middle_leak_no_slot(tmp_path: Path) -> None:
    """I10: claims and results cut off at any point; a minute later the whole limit is there."""
    limit = 4
    async with World(one_service(limit), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 200)
        for turns in range(12):
            await cut_off_after(turns, world.engine.claim(Worker(f"c{turns}"), 1))
            for lease in await world.claim(1, Worker(f"w{turns}")):
                await cut_off_after(turns, world.engine.complete(lease))
            await world.pass_time(1)
        for _ in range(60):
            await world.pass_time(1)
        await quiet(world)
        assert len(await world.claim(100)) == limit


async def test_a_lease_that_outlives_its_rates_minute_keeps_its_slot(tmp_path: Path) -> None:
    """I10: the rate's place is free again after a minute, the service's is not, in either store."""
    async with World(one_service(1, rate=10), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 2)
        lease = await world.claim_one()
        for _ in range(7):
            await world.pass_time(10)
            await world.engine.heartbeat(Worker("w"), [lease])
        pools = {pool.pool: pool.held for pool in (await core_of(world.engine).index.stats()).pools}
        assert (await held(world), pools["svc:work"]) == ({"svc:work": 1}, 1)
        assert await world.claim() == []
        assert await reconcile(core_of(world.engine)) == 0
        await world.engine.complete(lease)
        assert len(await world.claim(2)) == 1


@pytest.mark.parametrize("company", [False, True])
async def test_a_claim_refused_for_its_job_leaves_its_slots_free(
    tmp_path: Path, company: bool
) -> None:
    """I10: free slots, but another rev: nothing is granted and nothing is taken, also in a batch
    where another claim finds its slots taken."""
    async with World(three_pools(4), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("paint")] * 3)
        ledger = core_of(world.engine).ledger
        holder, late, forged = [
            confirmation(world, await world.job(job), slots_numbered(n), region="US")
            for job, n in zip(jobs, (1, 1, 2), strict=True)
        ]
        await ledger.confirm([holder])
        batch = [forged._replace(rev=forged.rev + 1), *([late] if company else [])]
        outcomes = (await ledger.confirm(batch)).outcomes
        assert all(isinstance(outcome, Unconfirmed) for outcome in outcomes)
        assert {row.token for row in await ledger.slots()} == {holder.token}


async def test_the_slot_of_an_overrun_is_free_in_both_stores_when_its_time_is_over(
    tmp_path: Path,
) -> None:
    """I10: the ledger frees it at the deadline, and the index hears of it in the same sweep."""
    async with World(three_pools(1, Overrun.STRICT), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("paint")] * 2)
        lease = await world.claim_one(Worker("eu", region="EU"))
        while world.clock.now() < lease.deadline:
            assert await world.claim(2, Worker("eu", region="EU")) == []
            await world.pass_time(15)
        assert len(await world.claim(2, Worker("eu", region="EU"))) == 1


async def test_an_undisturbed_run_gives_the_reconciler_nothing_to_correct(tmp_path: Path) -> None:
    """I10: index and ledger agree after every round, without anybody mending."""
    dice = random.Random(10)
    async with World(three_pools(4), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob(dice.choice(["paint", "sing"])) for _ in range(100)])
        workers = [Worker("eu", region="EU"), Worker("us", region="US"), Worker("any")]
        corrected = 0
        for _ in range(20):
            for lease in await world.claim(4, dice.choice(workers)):
                await world.engine.settle([any_report(lease, dice)])
                corrected += await reconcile(core_of(world.engine))
            world.clock.advance(seconds(1))
        assert corrected == 0


# --- I11: limits change while everything runs -----------------------------------------------------
async def test_a_raised_limit_holds_at_once(tmp_path: Path) -> None:
    """I11: the next claim has the new capacity, and so has one that was already waiting."""
    async with World(one_service(1), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 10)
        assert len(await world.claim(10)) == 1
        waiting = asyncio.create_task(world.engine.claim(Worker("waiting"), 1, wait=60))
        await asyncio.sleep(0)
        assert (await core_of(world.engine).index.stats()).idle == 1
        await world.engine.change("services", "work", "limit", 4)
        world.clock.advance(seconds(1))
        assert len(await waiting) == 1
        assert len(await world.claim(10)) == 2
        assert await world.claim(10) == []


async def test_a_lowered_limit_drains_and_kills_nothing(tmp_path: Path) -> None:
    """I11: four run on, nothing starts until fewer than the new limit are left, whichever ends
    first."""
    async with World(one_service(4), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 10)
        leases = await world.claim(10)
        await world.engine.change("services", "work", "limit", 2)
        assert (await world.engine.heartbeat(Worker("w"), leases)).lost == []
        numbers = {row.token: row.slot.n for row in await core_of(world.engine).ledger.slots()}
        leases.sort(key=lambda lease: numbers[lease.token])
        for lease in leases[:2]:  # the low numbers go first: two above the limit stay
            assert await world.claim(10) == []
            await world.engine.complete(lease)
        assert await world.claim(10) == []
        await world.engine.rebuild()
        assert await world.claim(10) == []
        await world.engine.complete(leases[2])
        assert len(await world.claim(10)) == 1
        await world.engine.complete(leases[3])
        assert len(await world.claim(10)) == 1
        assert await world.claim(10) == []
        await world.healthy()


async def test_an_index_that_missed_a_lowered_limit_gets_no_slot(tmp_path: Path) -> None:
    """I11: numbers within the new limit are refused while as many are held above it."""
    async with World(one_service(4), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work")] * 5)
        leases = await world.claim(4)
        await world.engine.change("services", "work", "limit", 2)
        ledger = core_of(world.engine).ledger
        numbers = {row.token: row.slot.n for row in await ledger.slots()}
        low = [lease for lease in leases if numbers[lease.token] <= 2]
        for lease in low:
            await world.engine.complete(lease)
        proposal = confirmation(world, await world.job(jobs[4]), [Slot("svc:work", 1)])
        assert isinstance((await ledger.confirm([proposal])).outcomes[0], Unconfirmed)
        (high, _) = [lease for lease in leases if lease not in low]
        await world.engine.complete(high)
        assert isinstance((await ledger.confirm([proposal])).outcomes[0], Lease)


async def test_a_changed_limit_survives_rebuild_and_restart(tmp_path: Path) -> None:
    """I11: what was set live holds in the next life, for what ran before too."""
    async with World(one_service(4), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 10)
        leases = await world.claim(3)
        await world.engine.change("services", "work", "limit", 2)
        await world.restart()
        assert await world.claim(10) == []
        await world.engine.settle([Done(lease) for lease in leases])
        assert len(await world.claim(10)) == 2


async def test_a_new_limit_counts_what_already_runs(tmp_path: Path) -> None:
    """I11: from no limit to one: the running drain first. From one to none: everything starts."""
    async with World(one_service(0), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 20)
        leases = await world.claim(3)
        await world.engine.change("services", "work", "limit", 2)
        assert await world.claim(10) == []
        await world.engine.settle([Done(lease) for lease in leases[:2]])
        assert len(await world.claim(10)) == 1
        await world.engine.change("services", "work", "limit", 0)
        assert len(await world.claim(10)) == 10
        await world.engine.change("services", "work", "limit", 5)
        assert await world.claim(10) == []


async def test_a_providers_limit_changes_for_all_its_services(tmp_path: Path) -> None:
    """I11: lowered under two services at once; both together drain to the new limit."""
    async with World(three_pools(4), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("paint"), NewJob("sing")] * 6)
        us = Worker("us", region="US")
        leases = await world.claim(12, us)
        assert len(leases) == 4
        await world.engine.change("providers", "cloud", "limit", 1)
        for lease in leases:
            assert await world.claim(12, us) == []
            await world.engine.complete(lease)
        assert len(await world.claim(12, us)) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_limits_that_change_under_load_are_never_passed(tmp_path: Path, seed: int) -> None:
    """I11: while claimers run, the limit goes up and down; nobody ever sees more running than the
    larger of the two, nor, once a lower one has drained, more than it."""
    dice = random.Random(seed)
    async with World(one_service(4), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 200)
        allowed = limit = 4
        left, calls = 200, 0

        async def claimer(worker: Worker) -> None:
            nonlocal left, calls
            while left:
                for lease in await world.engine.claim(worker, 1, wait=5):
                    calls += 1
                    assert calls <= allowed
                    for _ in range(dice.randrange(6)):
                        await asyncio.sleep(0)
                    calls -= 1
                    await world.engine.complete(lease)
                    left -= 1

        slots = core_of(world.engine).ledger.slots
        claimers = asyncio.gather(*(claimer(Worker(f"w{n}")) for n in range(16)))
        while not claimers.done():
            wanted = dice.randrange(1, 7)
            allowed = max(limit, wanted)
            await world.engine.change("services", "work", "limit", wanted)
            limit = wanted
            while max(calls, len(rows := await slots("svc:work"))) > limit:
                assert len(rows) <= allowed
            allowed = limit
            for _ in range(3):
                assert len(await slots("svc:work")) <= limit
                world.clock.advance(seconds(1))
        await claimers
        await quiet(world)


# --- what the tests say ---------------------------------------------------------------------------
def slots_numbered(n: int) -> list[Slot]:
    return [Slot(pool, n) for pool in ("svc:paint", "svc:paint@US", "prov:cloud")]


def under_a_cap(item: Confirmation, n: int, cap: int) -> Confirmation:
    """This claim with a number of its user's own, of whom so many jobs may run."""
    pool = user_pool(item.user)
    return item._replace(slots=(Slot(pool, n),), pools=frozenset({pool}), cap=cap)


async def held(world: World) -> dict[str, int]:
    """How many slots of each pool the ledger shows as taken."""
    return dict(Counter(row.slot.pool for row in await core_of(world.engine).ledger.slots()))


async def running(world: World) -> Counter[str]:
    """How many jobs run at each service, counted without looking at slots."""
    found: Counter[str] = Counter()
    async for page in core_of(world.engine).ledger.live(1000):
        found.update(job.current.service for job in page if job.state is State.RUNNING)
    return found


async def nothing_above(world: World, limits: dict[str, int]) -> None:
    rows = await core_of(world.engine).ledger.slots()
    numbers = [(row.slot.pool, row.slot.n) for row in rows]
    assert len(set(numbers)) == len(numbers)
    for pool, n in numbers:
        assert 1 <= n <= limits[pool], (pool, n)
    for service, count in (await running(world)).items():
        assert count <= limits[f"svc:{service}"]
    if "prov:cloud" in limits:
        assert (await running(world)).total() <= limits["prov:cloud"]


async def only_holder(world: World, lease: Lease) -> None:
    rows = await core_of(world.engine).ledger.slots()
    assert [row.token for row in rows] == [lease.token]
    assert await world.claim(5, Worker("hungry")) == []
    await world.engine.rebuild()
    assert await world.claim(5, Worker("hungry")) == []


async def say_everything_again(world: World, lease: Lease) -> None:
    """Every report a worker can make about a lease that has ended, twice."""
    reports: Iterable[Report] = [
        Done(lease),
        Failed(lease, Fault.TRANSIENT),
        Failed(lease, Fault.TRANSIENT, closed=False),
        GivenBack(lease),
    ]
    for report in [*reports, *reports]:
        await world.engine.settle([report])


def any_report(lease: Lease, dice: random.Random) -> Report:
    reports: list[Report] = [
        Done(lease),
        Failed(lease, Fault.TRANSIENT),
        Failed(lease, Fault.TIMEOUT, closed=False),
        GivenBack(lease),
    ]
    return dice.choices(reports, (5, 1, 1, 1))[0]


async def something_happens(world: World, leases: list[Lease], dice: random.Random) -> list[Lease]:
    """Some leases end, one way or another; the rest are renewed, or not."""
    rest = []
    for lease in leases:
        roll = dice.random()
        if roll < 0.4:
            await world.engine.settle([any_report(lease, dice)])
        elif roll < 0.5:
            with suppress(WrongState):
                await world.engine.cancel(lease.job)
        elif roll < 0.9:  # the rest vanish
            rest.append(lease)
    await world.engine.renew(rest, world.clock.now() + seconds(15))
    roll = dice.random()
    if roll < 0.05:
        await world.restart()
    elif roll < 0.15:
        await world.engine.rebuild()
    return rest


async def set_limits(world: World, limit: int) -> None:
    for service in ("paint", "sing"):
        await world.engine.change("services", service, "limit", limit)


async def quiet(world: World) -> None:
    """Neither store holds anything."""
    assert await core_of(world.engine).ledger.slots() == []
    stats = await core_of(world.engine).index.stats()
    assert {pool.pool: pool.held for pool in stats.pools if pool.held} == {}
    assert stats.held == 0
    await world.healthy()


async def cut_off_after(turns: int, work: Coroutine[None, None, object]) -> None:
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
