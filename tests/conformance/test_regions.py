"""Regions: where a job runs, which retries go first, and what happens when a region fails."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from fairlane.engine.reconciler import reconcile
from fairlane.index.index import Picks
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import (
    Executor,
    Fairness,
    Overrun,
    Provider,
    Region,
    RetryPlace,
    Service,
    Shares,
)
from fairlane.model.state import State
from fairlane.model.worker import Loaded, Worker
from tests.core import core_of
from tests.world import World, catalog

COLD = Loaded()
NAMES = ("US", "EU", "ASIA")
EVERYWHERE = Worker("dispatcher", regions=NAMES)


def settings(provider: int = 10, limits: tuple[int, ...] = (4, 4, 4), **more: object) -> Catalog:
    """One service in three regions, in this order in the file, under a limit of the provider."""
    regions = {name: Region(name, n) for name, n in zip(NAMES, limits, strict=True) if n >= 0}
    terms: dict[str, object] = {
        "executor": Executor.HTTP,
        "fairness": Fairness.NONE,
        "max_attempts": 9,
        "backoff": (30.0,),
        "failover": True,
        "retry_place": RetryPlace.FRONT,
        "timeout": 300,
    }
    service = Service("ask", provider="modal", regions=regions, **{**terms, **more})  # type: ignore[arg-type]
    return catalog(service, providers=[Provider("modal", limit=provider)])


def jobs(n: int, *regions: str) -> list[NewJob]:
    return [NewJob("ask", regions=regions) for _ in range(n)]


def per_region(leases: list[Lease]) -> dict[str | None, int]:
    return dict(Counter(lease.region for lease in leases))


async def close(world: World, region: str) -> list[str]:
    """Three jobs in a row find the region unavailable: its circuit breaker opens. The jobs."""
    names = await world.submit_all(jobs(3, region))
    for lease in await world.claim(3, Worker("prober", region=region)):
        await world.engine.fail(lease, Fault.UNAVAILABLE, "connection refused")
    return names


# --- where a job runs ----------------------------------------------------------------------------
async def test_each_job_goes_to_the_least_loaded_region_then_by_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    async with World(settings(limits=(2, 4, 4)), tmp_path / "l.db") as world:
        await world.submit_all(jobs(5))
        found = await world.claim(5, EVERYWHERE)
        # US 0/2, EU 0/4, ASIA 0/4 → US; then EU and ASIA; then EU and ASIA are at 1/4, US at 1/2
        assert [lease.region for lease in found] == ["US", "EU", "ASIA", "EU", "ASIA"]


async def test_waiting_jobs_that_may_run_only_there_count_as_work_of_their_region(
    tmp_path: Path,
) -> None:
    async with World(settings(), tmp_path / "l.db") as world:
        await world.submit("ask")
        await world.pass_time(1)
        await world.submit_all(jobs(2, "US"))
        assert (await world.claim_one(EVERYWHERE)).region == "EU"


async def test_the_providers_limit_holds_over_all_regions(tmp_path: Path) -> None:
    """I7: 4 + 4 + 4 slots, and never more than 10 calls."""
    async with World(settings(), tmp_path / "l.db") as world:
        await world.submit_all(jobs(20))
        found = await world.claim(20, EVERYWHERE)
        assert per_region(found) == {"US": 4, "EU": 3, "ASIA": 3}
        waiting = await world.submit("ask")
        reasons = (await world.engine.view(waiting)).reasons
        assert "modal 10/10 busy" in [reason.text for reason in reasons]
        (asian,) = [lease for lease in found if lease.region == "ASIA"][:1]
        await world.engine.complete(asian)
        assert [lease.region for lease in await world.claim(5, EVERYWHERE)] == ["ASIA"]


async def test_a_job_of_a_full_region_does_not_block_the_others(tmp_path: Path) -> None:
    async with World(settings(), tmp_path / "l.db") as world:
        await world.submit_all(jobs(6, "US"))
        await world.submit_all(jobs(3, "EU", "ASIA"))
        found = await world.claim(20, EVERYWHERE)
        assert per_region(found) == {"US": 4, "EU": 2, "ASIA": 1}


async def test_two_dispatchers_share_the_limits_of_the_regions(tmp_path: Path) -> None:
    async with World(settings(), tmp_path / "l.db") as world:
        await world.submit_all(jobs(20))
        first = await world.claim(5, EVERYWHERE)
        second = await world.claim(20, replace(EVERYWHERE, id="other"))
        assert per_region([*first, *second]) == {"US": 4, "EU": 3, "ASIA": 3}


async def test_a_forged_index_cannot_take_a_job_out_of_its_region(tmp_path: Path) -> None:
    """I27: the engine refuses a region that the job does not allow, also without a pool."""
    async with World(settings(0, (0, 0, 0)), tmp_path / "l.db") as world:
        job = await world.submit("ask", regions=("EU",))
        core = core_of(world.engine)
        honest = core.index.claim

        async def forged(*asked: object) -> Picks:
            picks = await honest(*asked)  # type: ignore[arg-type]
            return picks._replace(
                proposals=[each._replace(region="US") for each in picks.proposals]
            )

        core.index.claim = forged  # type: ignore[assignment, method-assign]
        assert await world.claim(1, EVERYWHERE) == []
        core.index.claim = honest  # type: ignore[method-assign]
        assert (await world.job(job)).state is State.QUEUED
        assert (await world.claim_one(EVERYWHERE)).region == "EU"


async def test_a_region_that_left_the_file_keeps_its_jobs_and_says_so(tmp_path: Path) -> None:
    world = World(settings(), tmp_path / "l.db")
    async with world:
        bound = await world.submit("ask", regions=("US",))
        free = await world.submit("ask", regions=("EU", "US"))
    world.settings = settings(limits=(-1, 4, 4))
    async with world:
        there = replace(EVERYWHERE, regions=("EU", "ASIA"))
        assert [lease.job for lease in await world.claim(9, there)] == [free]
        (reason, *_) = (await world.engine.view(bound)).reasons
        assert (reason.code, reason.text) == (
            "unrunnable",
            "ask has no region US any more (known: EU, ASIA): add it again, or cancel the job",
        )
    world.settings = settings()
    async with world:
        assert [lease.job for lease in await world.claim(9, EVERYWHERE)] == [bound]


# --- the order of retries ------------------------------------------------------------------------
async def test_global_retries_go_first_then_the_regions_own_then_fresh_work(
    tmp_path: Path,
) -> None:
    free = settings(failover=False, shares=Shares(500, 1000, 250), backoff=(0.0,))
    async with World(free, tmp_path / "l.db") as world:
        own = await world.submit("ask", regions=("EU",))
        shared = await world.submit("ask", regions=("EU", "US"))
        for lease in await world.claim(2, Worker("w", region="EU")):
            await world.engine.fail(lease, Fault.TRANSIENT)
        await world.pass_time(1)
        fresh = await world.submit("ask", regions=("EU",))
        found = [lease.job for lease in await world.claim(3, Worker("w", region="EU"))]
        assert found == [shared, own, fresh]


async def test_retries_leave_fresh_work_its_share(tmp_path: Path) -> None:
    """I17: front retries get a fifth of the picks while fresh work waits, in all regions."""
    plenty = settings(0, (0, 0, 0), failover=False, backoff=(0.0,))
    async with World(plenty, tmp_path / "l.db") as world:
        await world.submit_all(jobs(60))
        for lease in await world.claim(60, EVERYWHERE):
            await world.engine.fail(lease, Fault.TRANSIENT)
        await world.pass_time(1)
        fresh = set(await world.submit_all(jobs(60)))
        found = await world.claim(50, EVERYWHERE)
        assert sum(lease.job in fresh for lease in found) >= 36


# --- failover ------------------------------------------------------------------------------------
async def test_a_retry_leaves_an_unavailable_region_at_once(tmp_path: Path) -> None:
    async with World(settings(), tmp_path / "l.db") as world:
        job = await world.submit("ask")
        lease = await world.claim_one(EVERYWHERE)
        assert lease.region == "US"
        await world.engine.fail(lease, Fault.UNAVAILABLE, "connection refused", retry_after=90)
        again = await world.claim_one(EVERYWHERE)
        assert (again.job, again.region) == (job, "EU")
        await world.engine.complete(again)
        tried = await world.engine.attempts(job)
        assert [each.region for each in tried] == ["US", "EU"]
        events = await world.engine.stored_events(job)
        told = {str(event.type): event.data.get("region") for event in events}
        assert (told["JOB_RETRY"], told["STEP_START"]) == ("US", "EU")


async def test_a_job_that_meets_a_second_unavailable_region_waits_for_its_backoff(
    tmp_path: Path,
) -> None:
    """I18: otherwise it would use up all its attempts at once, one in each region."""
    async with World(settings(), tmp_path / "l.db") as world:
        await world.submit("ask")
        for region in ("US", "EU"):
            lease = await world.claim_one(EVERYWHERE)
            assert lease.region == region
            await world.engine.fail(lease, Fault.UNAVAILABLE, "connection refused")
        assert await world.claim(1, EVERYWHERE) == []
        await world.pass_time(30)
        assert (await world.claim_one(EVERYWHERE)).region == "US"


async def test_a_bound_job_that_probed_in_vain_probes_again(tmp_path: Path) -> None:
    """Its failure cost no attempt; the circuit breaker paces it, not the minute."""
    async with World(settings(), tmp_path / "l.db") as world:
        *_, last = await close(world, "US")
        for delay in (1, 2, 4):
            assert await world.claim(9, EVERYWHERE) == []
            await world.pass_time(delay)
            (probe,) = await world.claim(9, EVERYWHERE)
            assert probe.job == last
            await world.engine.fail(probe, Fault.UNAVAILABLE, "connection refused")
        await world.pass_time(8)
        await world.engine.complete(await world.claim_one(EVERYWHERE))
        assert (await world.job(last)).state is State.COMPLETED


async def test_a_retry_of_a_failed_job_leaves_the_region_after_its_backoff(tmp_path: Path) -> None:
    async with World(settings(), tmp_path / "l.db") as world:
        await world.submit("ask")
        await world.engine.fail(await world.claim_one(EVERYWHERE), Fault.TRANSIENT)
        assert await world.claim(1, EVERYWHERE) == []
        await world.pass_time(30)
        assert (await world.claim_one(EVERYWHERE)).region == "EU"


async def test_waiting_jobs_move_at_once_and_bound_ones_wait_and_say_why(tmp_path: Path) -> None:
    async with World(settings(), tmp_path / "l.db") as world:
        await world.engine.register(EVERYWHERE)
        await close(world, "US")
        bound = await world.submit("ask", regions=("US",))
        moved = await world.submit_all(jobs(4))
        found = await world.claim(9, EVERYWHERE)
        assert {lease.job for lease in found} == set(moved)
        assert per_region(found) == {"EU": 2, "ASIA": 2}
        told = {reason.code: reason.text for reason in (await world.engine.view(bound)).reasons}
        assert told["closed"] == "ask@US does not answer; next try in 1 s"
        assert told["region"] == "this job may run only in US"


async def test_a_job_says_of_each_region_why_it_cannot_start_there(tmp_path: Path) -> None:
    async with World(settings(), tmp_path / "l.db") as world:
        await close(world, "US")
        await world.submit_all(jobs(8))
        assert len(await world.claim(9, EVERYWHERE)) == 8
        waiting = await world.submit("ask")
        texts = [reason.text for reason in (await world.engine.view(waiting)).reasons]
        assert "ask@US does not answer; next try in 1 s" in texts
        assert {"ask@EU 4/4 busy", "ask@ASIA 4/4 busy"} <= {*texts}


async def test_a_job_that_may_not_leave_its_region_never_does(tmp_path: Path) -> None:
    """Not when the region is closed, and not when others are idle."""
    async with World(settings(), tmp_path / "l.db") as world:
        bound = await close(world, "US")
        for _ in range(6):
            await world.pass_time(20)
            for lease in await world.claim(9, EVERYWHERE):
                assert lease.region == "US"
                await world.engine.fail(lease, Fault.UNAVAILABLE, "connection refused")
        for job in bound:
            tried = await world.engine.attempts(job)
            assert {each.region for each in tried} == {"US"}
            assert (await world.job(job)).state is State.QUEUED


async def test_a_bound_retry_returns_after_a_minute(tmp_path: Path) -> None:
    async with World(settings(), tmp_path / "l.db") as world:
        await world.submit("ask", regions=("US",))
        await world.engine.fail(await world.claim_one(EVERYWHERE), Fault.TRANSIENT)
        await world.pass_time(59)
        assert await world.claim(1, EVERYWHERE) == []
        await world.pass_time(1)
        assert (await world.claim_one(EVERYWHERE)).region == "US"


async def test_a_retry_may_return_when_no_other_region_was_open_for_a_minute(
    tmp_path: Path,
) -> None:
    """The lane without US is given back after a minute of waiting, not earlier."""
    async with World(settings(limits=(4, 4, -1)), tmp_path / "l.db") as world:
        job = await world.submit("ask", regions=("EU", "US"))
        lease = await world.claim_one(Worker("w", region="US"))
        await close(world, "EU")
        await world.engine.fail(lease, Fault.UNAVAILABLE, "connection refused")
        america = Worker("us", region="US")
        await world.pass_time(30)
        await reconcile(core_of(world.engine))
        assert await world.claim(1, america) == []
        await world.pass_time(61)
        await reconcile(core_of(world.engine))
        again = await world.claim_one(america)
        assert (again.job, again.region) == (job, "US")


async def test_the_first_answer_of_a_region_brings_its_work_back(tmp_path: Path) -> None:
    """One probe, also with two dispatchers; its answer opens the region for all."""
    async with World(settings(), tmp_path / "l.db") as world:
        await close(world, "US")
        await world.submit_all(jobs(6, "US"))
        other = replace(EVERYWHERE, id="other")
        assert await world.claim(6, EVERYWHERE) == []
        await world.pass_time(1)
        (probe,) = await world.claim(6, EVERYWHERE)
        assert await world.claim(6, other) == []
        await world.engine.complete(probe)
        assert per_region(await world.claim(6, other)) == {"US": 4}


async def test_a_call_that_may_still_run_keeps_its_slots_while_its_job_moves(
    tmp_path: Path,
) -> None:
    """I8: overrun="strict". The dispatcher is gone; its call counts until its deadline."""
    strict = settings(2, (2, 2, 2), overrun=Overrun.STRICT, backoff=(0.0,))
    async with World(strict, tmp_path / "l.db") as world:
        job = await world.submit("ask")
        lease = await world.claim_one(EVERYWHERE)
        assert lease.region == "US"
        await world.pass_time(20)
        (again,) = await world.claim(3, EVERYWHERE)
        assert (again.job, again.region) == (job, "EU")
        await world.submit_all(jobs(3))
        assert await world.claim(3, EVERYWHERE) == []  # modal 2/2: one call runs, one may run
        await world.pass_time(279)
        assert await world.claim(3, EVERYWHERE) == []
        await world.pass_time(2)
        assert len(await world.claim(3, EVERYWHERE)) == 1


async def test_an_arriving_job_wakes_the_worker_of_the_best_region(tmp_path: Path) -> None:
    """Pull workers: the longest idle one is in a region that is closed."""
    async with World(settings(executor=Executor.PULL), tmp_path / "l.db") as world:
        await close(world, "US")
        core = core_of(world.engine)
        index = core.index
        for name in NAMES:
            worker = Worker(name, region=name)
            assert not (await index.claim(worker, COLD, 1, world.clock.now(), core.epoch)).proposals
        await world.submit("ask")
        await index.wait("EU", world.clock.now() + 1)
        assert (await index.stats()).idle == 2
        await index.claim(Worker("EU", region="EU"), COLD, 1, world.clock.now(), core.epoch)
        assert (await index.stats()).held == 1
