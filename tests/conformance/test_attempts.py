"""How often a job is tried, how long it waits in between, and when a service is to blame."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from fairlane.engine.settle import Failed
from fairlane.errors import NotReady, StaleLease
from fairlane.index.index import Index
from fairlane.ledger.ledger import Ledger
from fairlane.ledger.messages import Settled, Stale
from fairlane.model.attempt import Attempt, Fault, Outcome
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, Region, Service
from fairlane.model.state import Code, State
from fairlane.model.worker import Worker
from fairlane.units import SECOND
from tests.cluster.points import Points, Watched
from tests.conformance.acts import claim_until_found
from tests.core import core_of
from tests.world import World, catalog


def work(**more: object) -> Service:
    return Service("work", fairness=Fairness.NONE, **more)  # type: ignore[arg-type]


def granted_time(lease: Lease) -> float:
    return (lease.deadline - lease.started_at) / SECOND


# --- how often
@pytest.mark.parametrize(("tier", "most"), [("high", 6), ("medium", 4), ("low", 3)])
async def test_a_job_that_always_fails_is_dead_after_its_tiers_attempts(
    tmp_path: Path, tier: str, most: int
) -> None:
    """I18: 1 + max_retries attempts, numbered, then the dead letters; never one more."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(tier=tier)
        for number in range(1, most + 1):
            lease = await claim_until_found(world)
            assert lease.attempt == number
            await world.engine.fail(lease)
        found = await world.job(job)
        assert found.state is State.DEAD
        assert found.error is not None
        assert found.error.code is Code.MAX_ATTEMPTS
        assert [each.number for each in await world.engine.attempts(job)] == list(
            range(1, most + 1)
        )
        await world.pass_time(4000, sweeps=5)
        assert await world.claim() == []
        await world.healthy()


@pytest.mark.parametrize("length", [10, 10_000])
async def test_the_attempt_that_completes_a_job_is_told_like_any_other(
    tmp_path: Path, length: int
) -> None:
    """I18: which try it was, who ran it where, from when to when, and what it gave, long or
    short."""
    async with World(catalog(work(regions={"EU": Region("EU")})), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.engine.fail(await world.claim_one(Worker("first", region="EU")))
        await world.pass_time(60)
        began = world.clock.now()
        lease = await world.claim_one(Worker("last", region="EU"))
        world.clock.advance(5 * SECOND)
        await world.engine.complete(lease, "x" * length, {"tokens": 3})
        _, last = await world.engine.attempts(job)
        assert last == Attempt(
            job, 2, 0, 2, "last", "EU", began, began + 5 * SECOND, Outcome.COMPLETED, None, None
        )
        assert (await world.engine.view(job)).context == {
            "step_0_work": {
                "status": "SUCCESS",
                "data": "x" * length,
                "metrics": {"tokens": 3, "execution_time_ms": 5_000},
            },
            "step_0_work__attempts": 2,
        }


async def test_the_services_own_number_of_attempts_goes_before_the_tiers(tmp_path: Path) -> None:
    """I18: max_attempts of the service, one budget, never nested."""
    async with World(catalog(work(max_attempts=2)), tmp_path / "ledger.db") as world:
        job = await world.submit(tier="high")
        for n in (1, 2):
            await world.engine.fail(await claim_until_found(world))
            assert (await world.engine.view(job)).context == {"step_0_work__attempts": n}
        assert (await world.job(job)).state is State.DEAD


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_no_job_is_tried_too_often(tmp_path: Path, seed: int) -> None:
    """I18: failures, time-outs, lost workers, give-backs and restarts mixed: attempts ≤ max."""
    dice = random.Random(seed)
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(15)])
        for round_ in range(60):
            for lease in await world.claim(dice.randrange(1, 5)):
                match dice.randrange(5):
                    case 0:
                        await world.engine.fail(lease, Fault.TRANSIENT)
                    case 1:
                        await world.engine.fail(lease, Fault.TIMEOUT)
                    case 2:
                        await world.engine.give_back(lease)
                    case _:
                        pass  # the worker is not heard of again
            if round_ % 20 == 19:
                await world.restart()
            await world.pass_time(dice.randrange(1, 30))
        for _ in range(3):
            await world.pass_time(60)
            for lease in await world.claim(100):
                await world.engine.complete(lease)
        for job in jobs:
            costly = [
                each
                for each in await world.engine.attempts(job)
                if each.outcome is not Outcome.RELEASED
            ]
            assert [each.number for each in costly] == list(range(1, len(costly) + 1))
            assert 1 <= len(costly) <= 3
            ended = (await world.job(job)).state
            assert ended in (State.COMPLETED, State.DEAD)
            assert (ended is State.COMPLETED) == (costly[-1].outcome is Outcome.COMPLETED)
        await world.healthy()


async def test_no_free_slot_is_no_attempt(tmp_path: Path) -> None:
    """I18: a job that waits for capacity waits; it is neither tried nor failed."""
    async with World(catalog(work(limit=1)), tmp_path / "ledger.db") as world:
        await world.submit()
        waiting = await world.submit()
        lease = await world.claim_one()
        for number in range(30):
            assert await world.claim(1, Worker(f"w{number}")) == []
            await world.engine.heartbeat(Worker("w"), [lease])
            await world.pass_time(10)
        found = await world.job(waiting)
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        assert await world.engine.attempts(waiting) == []
        await world.engine.complete(lease)
        assert (await world.claim_one()).attempt == 1


async def test_giving_back_is_no_attempt(tmp_path: Path) -> None:
    """I18: a worker that stops without having tried costs the job nothing."""
    async with World(catalog(work(max_attempts=2)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        for _ in range(10):
            lease = await world.claim_one()
            assert lease.attempt == 1
            await world.engine.give_back(lease)
        assert (await world.job(job)).attempt == 0
        assert {each.outcome for each in await world.engine.attempts(job)} == {Outcome.RELEASED}
        await world.engine.fail(await world.claim_one())
        await world.pass_time(2)
        assert (await world.claim_one()).attempt == 2


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.INVALID_INPUT, Code.INVALID_INPUT),
        (Fault.SERVICE_ERROR, Code.SERVICE_ERROR),
        (Fault.RESULT_TOO_LARGE, Code.RESULT_TOO_LARGE),
        (Fault.QUALITY, Code.QUALITY),
    ],
)
async def test_a_failure_that_no_retry_can_help_is_not_retried(
    tmp_path: Path, fault: Fault, code: Code
) -> None:
    """I18: invalid input and HTTP 500 are permanent: one attempt, `failed`, named."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(tier="high")
        await world.engine.fail(await world.claim_one(), fault)
        found = await world.job(job)
        assert found.state is State.FAILED
        assert found.error is not None
        assert found.error.code is code
        assert len(await world.engine.attempts(job)) == 1


# --- how long in between ----------------------------------------------------------------
async def test_the_back_off_doubles_from_two_seconds_up_to_a_minute(tmp_path: Path) -> None:
    """I18: delay ∈ [0.8 · 2ⁿ, 2ⁿ] s, at most 60 s; not claimable a microsecond before."""
    async with World(catalog(work(max_attempts=9)), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(10)])
        delays: set[int] = set()
        for n in range(1, 9):
            leases = await world.claim(10)
            assert sorted(lease.job for lease in leases) == sorted(jobs)
            for lease in leases:
                await world.engine.fail(lease)
            full = min(2**n, 60) * SECOND
            now = world.clock.now()
            ready = sorted([(await world.job(job)).ready_at - now for job in jobs])
            delays.update(ready)
            assert full * 8 // 10 <= ready[0] <= ready[-1] <= full
            world.clock.advance(ready[0] - 1)
            assert await world.claim() == []
            world.clock.advance(ready[-1] - ready[0] + 1)
        assert len(delays) > 40, "retries come in step"


async def test_a_list_of_delays_replaces_the_powers_of_two(tmp_path: Path) -> None:
    """I18: 60, 120, 180 s, the last one for ever, shortened by a fifth at the most."""
    settings = catalog(work(max_attempts=6, backoff=(60, 120, 180)))
    async with World(settings, tmp_path / "ledger.db") as world:
        job = await world.submit()
        for full in (60, 120, 180, 180, 180):
            await world.engine.fail(await world.claim_one())
            delay = ((await world.job(job)).ready_at - world.clock.now()) / SECOND
            assert 0.8 * full <= delay <= full
            world.clock.advance(full * SECOND)


# --- how long at the most ---------------------------------------------------------------
async def test_the_deadline_ends_an_attempt_whose_worker_is_alive(tmp_path: Path) -> None:
    """I18: enforced by the sweep, whatever the worker says; its late result is refused."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(timeout=40 * SECOND)
        lease = await world.claim_one()
        for _ in range(7):
            await world.pass_time(5)
            assert (await world.engine.heartbeat(Worker("w"), [lease])).lost == []
        await world.pass_time(4.999999)
        assert (await world.job(job)).state is State.RUNNING
        await world.pass_time(0.000001)
        assert (await world.job(job)).state is State.QUEUED
        (attempt,) = await world.engine.attempts(job)
        assert (attempt.outcome, attempt.fault) == (Outcome.TIMEOUT, Fault.TIMEOUT)
        assert (await world.engine.heartbeat(Worker("w"), [lease])).lost == [job]
        with pytest.raises(StaleLease):
            await world.engine.complete(lease)


async def test_a_job_whose_worker_vanishes_every_time_is_buried(tmp_path: Path) -> None:
    """I18: a poison pill kills as many workers as it has attempts, then it is dead."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        deaths = 0
        while (await world.job(job)).state is not State.DEAD:
            lease = await claim_until_found(world)
            deaths += 1
            await world.pass_time(Worker("w").lease / SECOND)
            with pytest.raises(StaleLease):
                await world.engine.complete(lease)
        assert deaths == 3
        outcomes = [each.outcome for each in await world.engine.attempts(job)]
        assert outcomes == [Outcome.LOST] * 3
        assert await world.engine.count(State.DEAD) == 1
        await world.healthy()


async def test_work_of_a_vanished_worker_is_claimable_within_its_lease_and_three_seconds(
    tmp_path: Path,
) -> None:
    """I18: a lost attempt comes back after its lease and its back-off, not before its lease."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.pass_time(20)
        job = await world.submit()
        await world.claim_one()
        await world.pass_time(14.999999)
        assert (await world.job(job)).state is State.RUNNING
        await world.pass_time(0.000001)
        await world.pass_time(3)
        assert (await world.claim_one()).job == job


async def test_the_back_off_of_a_vanished_worker_begins_when_its_lease_ends(tmp_path: Path) -> None:
    """I4: not when somebody notices: two seconds after the lease the job can start, if it was taken
    back by then."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.pass_time(20)
        for late in (0, 0.9, 60):
            job = await world.submit()
            lease = await world.claim_one()
            await world.pass_time(15 + late)
            found = await world.job(job)
            assert found.state is State.QUEUED
            assert max(world.clock.now(), lease.lease_until + 1_600_000) <= found.ready_at
            assert found.ready_at <= max(world.clock.now(), lease.lease_until + 2 * SECOND)
            await world.pass_time(2)
            await world.engine.complete(await world.claim_one())


async def test_a_timeout_grows_by_half_up_to_four_times(tmp_path: Path) -> None:
    """I18: 100, 150, 225, 337.5, 400, 400 s: bounded growth, only after a timeout."""
    async with World(catalog(work(max_attempts=8)), tmp_path / "ledger.db") as world:
        await world.submit(timeout=100 * SECOND)
        times = []
        for fault in [Fault.TIMEOUT] * 3 + [Fault.TRANSIENT] + [Fault.TIMEOUT] * 3:
            lease = await claim_until_found(world)
            times.append(granted_time(lease))
            await world.engine.fail(lease, fault)
        lease = await claim_until_found(world)
        assert [*times, granted_time(lease)] == [100, 150, 225, 337.5, 337.5, 400, 400, 400]
        await world.engine.give_back(lease)
        assert granted_time(await world.claim_one()) == 400


async def test_a_timeout_never_grows_beyond_an_hour(tmp_path: Path) -> None:
    """I18: at most 3600 s, unless more was asked for to begin with."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        for asked, then in ((3000, 3600), (5000, 5000)):
            await world.submit(timeout=asked * SECOND)
            await world.engine.fail(await world.claim_one(), Fault.TIMEOUT)
            lease = await claim_until_found(world)
            assert granted_time(lease) == then
            await world.engine.complete(lease)


async def test_a_job_that_has_started_in_time_does_not_give_up(tmp_path: Path) -> None:
    """I18: the longest wait is about waiting: a running job ends by its deadline or its result."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(max_wait=30 * SECOND)
        lease = await world.claim_one()
        for _ in range(6):
            assert (await world.engine.heartbeat(Worker("w"), [lease])).lost == []
            await world.pass_time(10)
        assert (await world.job(job)).state is State.RUNNING
        await world.engine.complete(lease, "done")
        assert (await world.job(job)).state is State.COMPLETED


async def test_a_job_that_waits_longer_than_allowed_fails_and_can_go_on(tmp_path: Path) -> None:
    """I18: no capacity ends a job only if it said so: RESOURCE_EXHAUSTED, no attempt, resumable."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(max_wait=50 * SECOND)
        patient = await world.submit()
        await world.pass_time(49.999999)
        assert (await world.job(job)).state is State.QUEUED
        await world.pass_time(0.000001)
        found = await world.job(job)
        assert found.state is State.FAILED
        assert found.error is not None
        assert (found.error.code, found.attempt) == (Code.RESOURCE_EXHAUSTED, 0)
        await world.pass_time(100_000)
        assert (await world.job(patient)).state is State.QUEUED
        await world.engine.resume(job)
        assert {lease.job for lease in await world.claim(2)} == {job, patient}


# --- a sick service is not a sick job ---------------------------------------------------
async def close_the_service(world: World, extra: int = 3) -> tuple[list[str], list[str]]:
    """Three different jobs find the service unavailable: (those three, others that wait)."""
    sick = await world.submit_all([NewJob("work") for _ in range(3)])
    leases = await world.claim(3)
    others = await world.submit_all([NewJob("work") for _ in range(extra)])
    for lease in leases:
        await world.engine.fail(lease, Fault.UNAVAILABLE)
    return sick, others


async def closed(world: World) -> bool:
    return bool((await world.engine.overview()).stats.breakers)


async def test_three_jobs_that_find_nobody_close_the_service_at_no_cost(tmp_path: Path) -> None:
    """I18: while closed nothing is claimed, explain says so, and no attempt was used up."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        sick, others = await close_the_service(world)
        assert await closed(world)
        assert await world.claim(10) == []
        reasons = [reason.code for reason in (await world.engine.view(others[0])).reasons]
        assert "closed" in reasons
        assert [(await world.job(job)).attempt for job in sick] == [0, 0, 0]


async def test_a_closed_service_is_probed_by_one_job_and_opens_when_it_answers(
    tmp_path: Path,
) -> None:
    """I18: after a second exactly one job looks; its success opens the service for all."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        sick, others = await close_the_service(world)
        await world.pass_time(0.999999)
        assert await world.claim(10) == []
        await world.pass_time(0.000001)
        (probe,) = await world.claim(10)
        assert await world.claim(10, Worker("another")) == []
        await world.engine.complete(probe)
        assert not await closed(world)
        await world.pass_time(10)
        leases = await world.claim(10)
        assert {lease.job for lease in leases} == {*sick, *others} - {probe.job}
        assert [lease.attempt for lease in leases] == [1] * len(leases)


async def test_a_probe_that_fails_costs_nothing_and_doubles_the_wait(tmp_path: Path) -> None:
    """I18: 1, 2, 4 … 60 s between probes, and no job pays for looking."""
    async with World(catalog(work(max_attempts=2)), tmp_path / "ledger.db") as world:
        sick, others = await close_the_service(world, extra=12)
        for delay in (1, 2, 4, 8, 16, 32, 60, 60, 60):
            world.clock.advance(delay * SECOND - 1)
            assert await world.claim(20) == []
            world.clock.advance(1)
            (probe,) = await world.claim(20)
            await world.engine.fail(probe, Fault.UNAVAILABLE)
        world.clock.advance(60 * SECOND)
        await world.engine.complete(await world.claim_one())
        world.clock.advance(120 * SECOND)
        leases = await world.claim(20)
        assert len(leases) == len([*sick, *others]) - 1
        assert {lease.attempt for lease in leases} == {1}


async def test_the_service_stays_closed_as_long_as_it_asked_for(tmp_path: Path) -> None:
    """I18: Retry-After goes before our own delays."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work") for _ in range(5)])
        for lease in await world.claim(3):
            await world.engine.fail(lease, Fault.UNAVAILABLE, retry_after=90)
        world.clock.advance(90 * SECOND - 1)
        assert await world.claim(10) == []
        world.clock.advance(1)
        assert len(await world.claim(10)) == 1


async def test_one_job_that_finds_nobody_three_times_closes_nothing(tmp_path: Path) -> None:
    """I18: three failures of one job are that job's: they cost attempts and nobody else's time."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        for _ in range(3):
            await world.engine.fail(await claim_until_found(world), Fault.UNAVAILABLE)
            assert not await closed(world)
        assert (await world.job(job)).state is State.DEAD


async def test_an_answer_in_between_ends_the_streak(tmp_path: Path) -> None:
    """I18: three in a row means in a row."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work") for _ in range(9)])
        leases = await world.claim(9)
        for number, lease in enumerate(leases):
            if number % 3 == 2:
                await world.engine.complete(lease)
            else:
                await world.engine.fail(lease, Fault.UNAVAILABLE)
        assert not await closed(world)


async def test_failures_reported_in_one_batch_cost_no_attempt_either(tmp_path: Path) -> None:
    """I18: the failures that closed the service cost nothing, however they were reported."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(3)])
        leases = await world.claim(3)
        outcomes = await world.engine.settle([Failed(lease, Fault.UNAVAILABLE) for lease in leases])
        assert all(isinstance(outcome, Settled) for outcome in outcomes)
        assert await closed(world)
        assert [(await world.job(job)).attempt for job in jobs] == [0, 0, 0]


async def test_failures_reported_at_the_same_time_cost_what_they_cost_in_turn(
    tmp_path: Path,
) -> None:
    """I18: two jobs pay, and get their attempt back if they have another one; all later ones find
    the service sick, although the index has counted none of them yet."""
    async with World(catalog(work(max_attempts=1)), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(8)])
        leases = await world.claim(8)
        await asyncio.gather(*(world.engine.fail(each, Fault.UNAVAILABLE) for each in leases))
        assert await closed(world)
        found = [await world.job(job) for job in jobs]
        assert Counter(job.state for job in found) == {State.DEAD: 2, State.QUEUED: 6}
        assert {job.attempt for job in found if job.state is State.QUEUED} == {0}
        assert not core_of(world.engine).failing
    async with World(catalog(work(max_attempts=2)), tmp_path / "other.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(8)])
        leases = await world.claim(8)
        await asyncio.gather(*(world.engine.fail(each, Fault.UNAVAILABLE) for each in leases))
        assert {(await world.job(job)).attempt for job in jobs} == {0}


async def test_a_failure_that_cost_nothing_gives_no_attempt_back(tmp_path: Path) -> None:
    """I18: an attempt that was used up before stays used."""
    async with World(catalog(work(max_attempts=5)), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(3)])
        await world.engine.settle([Failed(each, Fault.TRANSIENT) for each in await world.claim(3)])
        await world.pass_time(10)
        leases = await world.claim(3)
        await world.engine.settle([Failed(lease, Fault.UNAVAILABLE) for lease in leases])
        assert [(await world.job(job)).attempt for job in jobs] == [1, 1, 1]


async def test_a_job_at_a_later_step_gets_no_attempt_back(tmp_path: Path) -> None:
    """I18: the service is found ill when the job has left it, and has used an attempt elsewhere."""
    regions = {name: Region(name) for name in ("EU", "US")}
    settings = catalog(
        work(regions=regions, failover=True, max_attempts=5, backoff=(0,)),
        Service("next", fairness=Fairness.NONE, max_attempts=5),
        pipelines={"both": ("work", "next")},
    )
    europe, america = Worker("eu", region="EU"), Worker("us", region="US")
    async with World(settings, tmp_path / "ledger.db") as world:
        job = await world.submit("both")
        await world.engine.fail(await world.claim_one(europe), Fault.UNAVAILABLE)
        await world.pass_time(1)
        await world.engine.complete(await world.claim_one(america))
        await world.engine.fail(await world.claim_one(america), Fault.TRANSIENT)
        await world.submit_all([NewJob("work") for _ in range(2)])
        for lease in await world.claim(2, europe):
            await world.engine.fail(lease, Fault.UNAVAILABLE)
        found = await world.job(job)
        assert (found.step, found.attempt) == (1, 1)


async def test_a_failure_is_in_the_ledger_before_the_index_counts_it(tmp_path: Path) -> None:
    """I18: SQL first, also for failures. What the index is asked before is only a question."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work") for _ in range(3)])
        leases = await world.claim(3)
        core, points = core_of(world.engine), Points(lambda *_: None)
        core.ledger = cast("Ledger", Watched(core.ledger, "ledger", points))
        core.index = cast("Index", Watched(core.index, "index", points))
        for lease in leases:
            points.passed.clear()
            await world.engine.fail(lease, Fault.UNAVAILABLE)
            written = points.passed.index("after ledger.settle")
            assert points.passed[:written] == [
                "before index.breaker",
                "after index.breaker",
                "before ledger.settle",
            ]
            assert "after index.unavailable" in points.passed[written:]


async def test_a_failure_that_the_index_never_counted_keeps_no_probe(tmp_path: Path) -> None:
    """I18: a process that dies between ledger and index leaves one failure uncounted; the sweep
    lets another probe look, and that one's answer closes the circuit breaker."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        await close_the_service(world)
        await world.pass_time(1)
        probe = await world.claim_one()
        core, index = core_of(world.engine), core_of(world.engine).index
        core.index = cast("Index", Unheard(index))
        await world.engine.fail(probe, Fault.UNAVAILABLE)
        core.index, core.index_missed = index, False
        assert (await world.job(probe.job)).state is State.QUEUED
        assert [each.outcome for each in await world.engine.attempts(probe.job)][-1] == "failed"
        await world.engine.complete(await claim_until_found(world))
        assert not await closed(world)
        await world.healthy()


class Unheard:
    """An index that answers questions and hears nothing of what is written."""

    def __init__(self, index: Index) -> None:
        self.breaker = index.breaker

    def __getattr__(self, verb: str) -> object:
        async def lost(*_: object) -> None:
            raise NotReady(verb)

        return lost


async def test_a_probe_that_is_given_back_leaves_the_look_to_another(tmp_path: Path) -> None:
    """I18: a closed service opens again although its probe was given back unused."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        await close_the_service(world)
        await world.pass_time(1)
        await world.engine.give_back(await world.claim_one())
        await world.engine.complete(await claim_until_found(world))
        assert not await closed(world)


async def test_a_probe_that_is_cancelled_leaves_the_look_to_another(tmp_path: Path) -> None:
    """I18: a closed service opens again although its probe was cancelled while it ran."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        await close_the_service(world)
        await world.pass_time(1)
        lease = await world.claim_one()
        await world.engine.cancel(lease.job)
        with pytest.raises(StaleLease):
            await world.engine.complete(lease)
        await world.engine.complete(await claim_until_found(world))
        assert not await closed(world)


async def test_a_probe_whose_worker_vanished_leaves_the_look_to_another(tmp_path: Path) -> None:
    """I18: a closed service opens again although nobody heard of its probe."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        await close_the_service(world)
        await world.pass_time(1)
        await world.claim_one()
        await world.engine.complete(await claim_until_found(world))
        assert not await closed(world)


async def test_a_probe_that_was_proposed_and_never_confirmed_leaves_the_look_to_another(
    tmp_path: Path,
) -> None:
    """I18: a closed service opens again although a claim broke off between index and ledger."""
    async with World(catalog(work(max_attempts=3)), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        await close_the_service(world)
        await world.pass_time(1)
        worker = Worker("gone")
        loaded = core.loaded[Worker("w").id]
        picks = await core.index.claim(worker, loaded, 1, core.now(), core.epoch)
        assert len(picks.proposals) == 1
        await world.engine.complete(await claim_until_found(world))
        assert not await closed(world)


async def test_the_time_of_an_attempt_can_count_from_a_later_start(tmp_path: Path) -> None:
    """I39: a job that waits in the queue of a Celery fleet does not use up its time."""
    async with World(catalog(work(timeout=10)), tmp_path / "ledger.db") as world:
        await world.submit()
        lease = await world.claim_one()
        world.clock.advance(7 * SECOND)
        moved = await world.engine.leases.move_start(lease, world.clock.now())
        assert isinstance(moved, Lease)
        assert moved.started_at == lease.started_at + 7 * SECOND
        assert moved.deadline == lease.deadline + 7 * SECOND
        again = await world.engine.leases.move_start(lease, lease.started_at)
        assert again == moved
        await world.engine.renew([moved], moved.deadline)
        await world.pass_time(9)
        await world.engine.complete(moved)
        (attempt,) = await world.engine.attempts(lease.job)
        assert attempt.started_at == moved.started_at
        assert attempt.ended_at - attempt.started_at == 9 * SECOND


async def test_the_start_of_a_lost_attempt_cannot_be_moved(tmp_path: Path) -> None:
    """I3: a late dispatcher does not move the start of the attempt that took over."""
    async with World(catalog(work(timeout=10, max_attempts=2)), tmp_path / "ledger.db") as world:
        await world.submit()
        lost = await world.claim_one()
        await world.engine.fail(lost)
        taken_over = await claim_until_found(world)
        moved = await world.engine.leases.move_start(lost, world.clock.now() + SECOND)
        assert isinstance(moved, Stale)
        job = await world.job(lost.job)
        assert (job.started_at, job.deadline) == (taken_over.started_at, taken_over.deadline)
