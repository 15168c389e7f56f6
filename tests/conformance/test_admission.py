"""One key is one job (I12), and nobody gets in, or runs, beyond a quota (I13)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from fairlane.clock import seconds
from fairlane.engine.settle import Done, Failed, GivenBack, Report
from fairlane.engine.submit import Caller
from fairlane.errors import Expired, FairlaneError, InvalidInput, KeyReused, Refused, WrongState
from fairlane.ledger.messages import Filter, Replayed, SubmissionAccepted, SubmitOutcome
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Executor, Fairness, Provider, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from tests.core import core_of
from tests.world import World, catalog

DAY = 86_400
ADA, BOB = "ada", "bob"


def quotas(limits: Limits | None = None, **tier: float) -> Catalog:
    """One tier with these limits; jobs give up after an hour in line, and have two attempts."""
    tiers = Tiers([Tier("only", max_retries=1, **tier)])  # type: ignore[arg-type]
    service = Service("work", fairness=Fairness.NONE, max_wait=3600)
    return catalog(service, tiers=tiers, limits=limits)


# --- I12: one key, one job ------------------------------------------------------------------------
async def test_a_hundred_submits_with_one_key_are_one_job(tmp_path: Path) -> None:
    """I12: at the same moment, one accepted, the others answered with its id."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = NewJob("work", {"n": 1}, idempotency_key="k")
        answers = await asyncio.gather(*(world.engine.submit(job) for _ in range(100)))
        assert len({answer.job for answer in answers}) == 1
        assert Counter(map(type, answers)) == {SubmissionAccepted: 1, Replayed: 99}
        assert len((await world.engine.list_jobs()).jobs) == 1
        assert len(await world.claim(100)) == 1


async def test_one_key_many_times_in_one_batch_is_one_job(tmp_path: Path) -> None:
    """I12: also against its neighbours in the same call."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        answers = await world.engine.submit_many([NewJob("work", idempotency_key="k")] * 10)
        assert len({answer.job for answer in answers if not isinstance(answer, Exception)}) == 1
        assert Counter(map(type, answers)) == {SubmissionAccepted: 1, Replayed: 9}
        assert len(await world.claim(100)) == 1


async def test_two_requests_that_race_for_one_key_are_told_apart(tmp_path: Path) -> None:
    """I12: fifty of each: all equals of the winner hear its id, all others that the key is used."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = [NewJob("work", n % 2, idempotency_key="k") for n in range(100)]
        random.Random(12).shuffle(jobs)
        answers = await asyncio.gather(*map(world.engine.submit, jobs), return_exceptions=True)
        (job,) = (await world.engine.list_jobs()).jobs
        won, _ = await core_of(world.engine).ledger.payload(job.id)
        for request, answer in zip(jobs, answers, strict=True):
            if request.input == won:
                assert isinstance(answer, SubmissionAccepted | Replayed)
                assert answer.job == job.id
            else:
                assert isinstance(answer, KeyReused)


OTHERS = {
    "input": NewJob("work", {"n": 2}, ADA),
    "user": NewJob("work", {"n": 1}, BOB),
    "no user": NewJob("work", {"n": 1}),
    "tier": NewJob("work", {"n": 1}, ADA, tier="high"),
    "model": NewJob("work", {"n": 1}, ADA, model="m"),
    "duration": NewJob("work", {"n": 1}, ADA, duration=1),
    "tags": NewJob("work", {"n": 1}, ADA, tags=("t",)),
    "timeout": NewJob("work", {"n": 1}, ADA, timeout=1_000_000),
    "service": NewJob("play", {"n": 1}, ADA),
    "matrix": NewJob("work", {"n": 1}, ADA, matrix={"model": ("a",)}),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
async def test_a_key_with_another_request_is_refused(tmp_path: Path, other: NewJob) -> None:
    """I12: every part of the request counts; nothing is written."""
    async with World(catalog(Service("work"), Service("play")), tmp_path / "ledger.db") as world:
        await world.submit(input={"n": 1}, user=ADA, idempotency_key="k")
        with pytest.raises(KeyReused):
            await world.engine.submit(other._replace(idempotency_key="k"))
        assert len((await world.engine.list_jobs()).jobs) == 1


async def test_requests_are_compared_as_canonical_json(tmp_path: Path) -> None:
    """I12: the order of an object's members is no difference."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        first = await world.submit(input={"a": 1, "b": {"c": 2, "d": 3}}, idempotency_key="k")
        again = await world.submit(input={"b": {"d": 3, "c": 2}, "a": 1}, idempotency_key="k")
        assert again == first


async def test_a_key_belongs_to_its_caller(tmp_path: Path) -> None:
    """I12: another tenant's, and another credential's, equal key is another key."""
    callers = [Caller("a", "x"), Caller("a", "y"), Caller("b", "x")]
    async with World(catalog(), tmp_path / "ledger.db") as world:
        first = [await world.submit(caller=each, idempotency_key="k") for each in callers]
        assert len(set(first)) == 3
        assert [await world.submit(caller=each, idempotency_key="k") for each in callers] == first
        for each in callers:
            with pytest.raises(KeyReused):
                await world.submit(caller=each, input="other", idempotency_key="k")


async def test_a_key_is_kept_for_a_day_to_the_second(tmp_path: Path) -> None:
    """I12: at 23:59:59 it is known, at 24:00:01 it is free; being asked does not prolong it."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        first = await world.submit(idempotency_key="k")
        await world.drain()
        created = (await world.job(first)).created_at
        world.clock.advance(created + seconds(DAY - 1) - world.clock.now())
        await collect(world)
        assert await world.submit(idempotency_key="k") == first
        with pytest.raises(KeyReused):
            await world.submit(input="other", idempotency_key="k")
        world.clock.advance(seconds(2))
        second = await world.submit(input="other", idempotency_key="k")
        assert second != first
        with pytest.raises(KeyReused):
            await world.submit(idempotency_key="k")


async def test_a_key_survives_a_restart(tmp_path: Path) -> None:
    """I12: it was committed with its job."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        first = await world.submit(input=1, idempotency_key="k")
        await world.restart()
        assert await world.submit(input=1, idempotency_key="k") == first
        with pytest.raises(KeyReused):
            await world.submit(input=2, idempotency_key="k")


async def test_a_caller_who_lost_the_answer_asks_again_and_has_one_job(tmp_path: Path) -> None:
    """I12: cut off at any point, then repeated with the same key: one job, and it runs."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        for turns in range(8):
            key = f"k{turns}"
            task = asyncio.create_task(world.submit(idempotency_key=key))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await world.submit(idempotency_key=key)
        await world.pass_time(5, sweeps=5)
        assert len((await world.engine.list_jobs()).jobs) == 8
        assert len(await world.claim(100)) == 8


async def test_a_known_key_is_answered_before_any_quota(tmp_path: Path) -> None:
    """I12: pending, hour and queue are full; the repeated request still hears its job."""
    settings = quotas(Limits(waiting=1), pending=1, per_hour=1)
    async with World(settings, tmp_path / "ledger.db") as world:
        first = await world.submit(user=ADA, idempotency_key="k")
        with pytest.raises(Refused):
            await world.submit(user=ADA, idempotency_key="new")
        assert await world.submit(user=ADA, idempotency_key="k") == first
        with pytest.raises(KeyReused):
            await world.submit(user=ADA, input="other", idempotency_key="k")


async def test_a_known_key_is_answered_before_the_longest_duration_is_looked_at(
    tmp_path: Path,
) -> None:
    """I12: the user has fallen to a tier that would no longer allow this; it was allowed then."""
    tiers = Tiers([Tier("rich"), Tier("poor", max_duration=30)])
    async with World(catalog(tiers=tiers), tmp_path / "ledger.db") as world:
        await world.engine.set_tier(ADA, "rich")
        first = await world.submit(user=ADA, duration=60, idempotency_key="k")
        await world.engine.set_tier(ADA, "poor")
        assert await world.submit(user=ADA, duration=60, idempotency_key="k") == first


async def test_a_refused_submit_does_not_use_up_its_key(tmp_path: Path) -> None:
    """I12: the key belongs to a job, and there is none."""
    async with World(quotas(pending=1), tmp_path / "ledger.db") as world:
        await world.submit(user=ADA)
        for _ in range(2):
            with pytest.raises(Refused):
                await world.submit(user=ADA, input=1, idempotency_key="k")
        await world.drain()
        second = await world.submit(user=ADA, input=2, idempotency_key="k")
        assert (await world.job(second)).live


async def test_a_key_outlives_the_record_of_its_job(tmp_path: Path) -> None:
    """I12: the job is gone after an hour; its key still says which it was and how it ended."""
    settings = catalog(limits=Limits(keep_finished=3600))
    async with World(settings, tmp_path / "ledger.db") as world:
        job = NewJob("work", idempotency_key="k")
        first = (await world.engine.submit(job)).job
        await world.drain()
        world.clock.advance(seconds(3601))
        await collect(world)
        with pytest.raises(Expired):
            await world.engine.get(first)
        assert await world.engine.submit(job) == Replayed(first, "completed")
        assert await world.claim() == []


async def test_a_fan_out_has_one_key_for_all_its_cells(tmp_path: Path) -> None:
    """I12: repeated, it is the same fan-out with the same cells."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = NewJob("work", matrix={"model": ("a", "b")}, idempotency_key="k")
        answers = await asyncio.gather(*(world.engine.submit(job) for _ in range(20)))
        (parent,) = {answer.job for answer in answers}
        assert len((await world.engine.list_jobs(Filter(parent=parent))).jobs) == 2
        assert len(await world.claim(100)) == 2


# --- I13: what one user may have pending ----------------------------------------------------------
async def test_two_hundred_submits_at_once_fill_twenty_places_exactly(tmp_path: Path) -> None:
    """I13: 20 accepted, 180 refused, each told which limit and what is left."""
    async with World(quotas(pending=20), tmp_path / "ledger.db") as world:
        answers = await all_at_once(world, [NewJob("work", user=ADA)] * 200)
        assert tally(answers) == {"accepted": 20, "too_many_pending": 180}
        assert {(e.limit, e.left) for e in answers if isinstance(e, Refused)} == {(20, 0)}
        assert len((await world.engine.list_jobs(limit=200)).jobs) == 20
        assert tally(await all_at_once(world, [NewJob("work", user=BOB)] * 21))["accepted"] == 20


async def test_a_batch_is_cut_at_the_quota(tmp_path: Path) -> None:
    """I13: two hundred in one call, for two users in turn."""
    async with World(quotas(pending=20), tmp_path / "ledger.db") as world:
        jobs = [NewJob("work", user=(ADA, BOB)[n % 2]) for n in range(200)]
        answers = await world.engine.submit_many(jobs)
        assert tally(answers) == {"accepted": 40, "too_many_pending": 160}


Ending = Callable[[World], Awaitable[object]]


async def cancel_a_queued(world: World) -> None:
    job, *_ = (await world.engine.list_jobs(Filter(states=(State.QUEUED,)))).jobs
    await world.engine.cancel(job.id)


async def cancel_a_running(world: World) -> None:
    await world.engine.cancel((await world.claim_one()).job)


async def cancel_twice(world: World) -> None:
    lease = await world.claim_one()
    await world.engine.cancel(lease.job)
    with pytest.raises(WrongState):
        await world.engine.cancel(lease.job)


async def complete(world: World) -> None:
    await world.engine.complete(await world.claim_one())


async def complete_twice(world: World) -> None:
    lease = await world.claim_one()
    await world.engine.complete(lease)
    await world.engine.complete(lease)


async def fail_for_good(world: World) -> None:
    await world.engine.fail(await world.claim_one(), Fault.INVALID_INPUT)


async def use_up_the_attempts(world: World) -> None:
    lease = await world.claim_one()
    await world.engine.fail(lease)
    world.clock.advance(seconds(3))
    for each in await world.claim(3):
        if each.job == lease.job:
            await world.engine.fail(each)
        else:
            await world.engine.give_back(each)
    assert (await world.job(lease.job)).state is State.DEAD


ENDINGS = [
    cancel_a_queued,
    cancel_a_running,
    cancel_twice,
    complete,
    complete_twice,
    fail_for_good,
    use_up_the_attempts,
]


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
async def test_an_end_gives_back_exactly_one_pending_place(tmp_path: Path, end: Ending) -> None:
    """I13: however a job ends, one more gets in, and only one; also after a restart."""
    async with World(quotas(pending=3), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work", user=ADA)] * 3)
        for _ in range(2):
            await end(world)
            answers = await all_at_once(world, [NewJob("work", user=ADA)] * 5)
            assert tally(answers) == {"accepted": 1, "too_many_pending": 4}
        await world.restart()
        assert tally(await all_at_once(world, [NewJob("work", user=ADA)]))["accepted"] == 0


async def test_running_retrying_and_delayed_jobs_are_pending(tmp_path: Path) -> None:
    """I13: only an end gives a place back: no claim, failure, loss or give-back does."""
    async with World(quotas(pending=4), tmp_path / "ledger.db") as world:
        later = world.clock.now() + seconds(3600)
        await world.submit_all([NewJob("work", user=ADA)] * 3)
        await world.submit(user=ADA, run_at=later)
        retried, returned, lost = await world.claim(3)
        await world.engine.fail(retried)
        await world.engine.give_back(returned)
        await world.pass_time(16)
        assert (await world.job(lost.job)).state is State.QUEUED
        await world.claim_one()
        answers = await all_at_once(world, [NewJob("work", user=ADA)] * 2)
        assert tally(answers) == {"too_many_pending": 2}


async def test_giving_up_gives_the_place_back_and_resuming_takes_it_again(tmp_path: Path) -> None:
    """I13: a resumed job needs a place like a new one; racing for the last, one gets it."""
    async with World(quotas(pending=2), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work", user=ADA)] * 2)
        await world.pass_time(3601)
        assert [(await world.job(job)).state for job in jobs] == [State.FAILED] * 2
        await world.submit(user=ADA)
        await asyncio.gather(
            *(world.engine.resume(job) for job in jobs),
            *(world.submit(user=ADA) for _ in range(5)),
            return_exceptions=True,
        )
        assert await pending(world, ADA) == 2
        failed = [job for job in jobs if not (await world.job(job)).live]
        with pytest.raises(Refused):
            await world.engine.resume(failed[0])


async def test_users_tenants_and_keys_have_places_of_their_own(tmp_path: Path) -> None:
    """I13: a user is a user of one tenant; who names none is counted by key."""
    async with World(quotas(pending=1), tmp_path / "ledger.db") as world:
        for caller in (Caller("a", "x"), Caller("b", "x")):
            await world.submit(caller=caller, user=ADA)
        with pytest.raises(Refused):
            await world.submit(caller=Caller("a", "y"), user=ADA)
        for caller in (Caller("a", "x"), Caller("a", "y"), Caller("b", "x")):
            await world.submit(caller=caller)
            with pytest.raises(Refused):
                await world.submit(caller=caller)


# --- I13: what one user may submit in an hour -----------------------------------------------------
async def test_the_hourly_quota_is_exact_and_no_end_gives_it_back(tmp_path: Path) -> None:
    """I13: 200 at once, 20 accepted; cancelled and completed ones still count; a second before the
    hour none, a second after it twenty again."""
    async with World(quotas(per_hour=20), tmp_path / "ledger.db") as world:
        asked = [NewJob("work", user=ADA)] * 200
        start = world.clock.now()
        answers = await all_at_once(world, asked)
        assert tally(answers) == {"accepted": 20, "too_many_this_hour": 180}
        frees = {error.frees_at for error in answers if isinstance(error, Refused)}
        assert frees == {start + seconds(3600)}
        for _ in range(10):
            await cancel_a_queued(world)
            await complete(world)
        world.clock.advance(seconds(3599))
        assert tally(await all_at_once(world, asked[:5])) == {"too_many_this_hour": 5}
        await world.restart()
        assert tally(await all_at_once(world, asked[:5])) == {"too_many_this_hour": 5}
        world.clock.advance(seconds(2))
        assert tally(await all_at_once(world, asked))["accepted"] == 20


async def test_the_hour_slides(tmp_path: Path) -> None:
    """I13: each accepted submit is forgotten an hour after itself, not with the others."""
    async with World(quotas(per_hour=20), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work", user=ADA)] * 5)
        world.clock.advance(seconds(1800))
        await world.submit_all([NewJob("work", user=ADA)] * 15)
        world.clock.advance(seconds(1801))
        answers = await all_at_once(world, [NewJob("work", user=ADA)] * 30)
        assert tally(answers)["accepted"] == 5


async def test_a_fan_out_is_told_when_the_hour_has_room_for_all_its_cells(tmp_path: Path) -> None:
    """I13: not when the first place frees; and no time if it never fits."""
    async with World(quotas(per_hour=5), tmp_path / "ledger.db") as world:
        start = world.clock.now()
        for _ in range(4):
            await world.submit(user=ADA)
            world.clock.advance(seconds(60))
        (one_over,) = await all_at_once(world, [fan_out(2)])
        (three_over,) = await all_at_once(world, [fan_out(4)])
        (never,) = await all_at_once(world, [fan_out(6)])
        assert isinstance(one_over, Refused)
        assert isinstance(three_over, Refused)
        assert isinstance(never, Refused)
        assert [each.left for each in (one_over, three_over, never)] == [1, 1, 1]
        assert one_over.frees_at == start + seconds(3600)
        assert three_over.frees_at == start + seconds(3600 + 2 * 60)
        assert never.frees_at is None
        world.clock.advance(three_over.frees_at - 1 - world.clock.now())
        assert tally(await all_at_once(world, [fan_out(4)])) == {"too_many_this_hour": 1}
        world.clock.advance(1)
        assert tally(await all_at_once(world, [fan_out(4)])) == {"accepted": 1}


async def test_a_batch_is_told_an_hour_for_places_that_it_takes_itself(tmp_path: Path) -> None:
    async with World(quotas(per_hour=3), tmp_path / "ledger.db") as world:
        outcomes = await world.engine.submit_many([fan_out(2), fan_out(3)])
        assert isinstance(outcomes[1], Refused)
        assert outcomes[1].frees_at == world.clock.now() + seconds(3600)


async def test_of_several_limits_the_hour_refuses_first_and_the_whole_queue_last(
    tmp_path: Path,
) -> None:
    """I13: each refusal names its setting and the tier."""
    cases = {
        "too_many_this_hour": quotas(Limits(waiting=1), pending=1, per_hour=1),
        "too_many_pending": quotas(Limits(waiting=1), pending=1),
        "queue_full": quotas(Limits(waiting=1)),
    }
    settings = {
        "too_many_this_hour": "tiers.per_hour",
        "too_many_pending": "tiers.pending",
        "queue_full": "limits.waiting",
    }
    for code, limits in cases.items():
        async with World(limits, tmp_path / f"{code}.db") as world:
            await world.submit(user=ADA)
            with pytest.raises(Refused) as caught:
                await world.submit(user=ADA)
            refused = caught.value
            assert (refused.code, refused.setting, refused.tier) == (code, settings[code], "only")


async def test_every_tier_may_fill_the_queue_if_the_lowest_tier_share_is_one(
    tmp_path: Path,
) -> None:
    """I13: with the default of a half, the lowest of three tiers has half of the places."""
    for share, places in ((0.5, 5), (1, 10)):
        limits = Limits(waiting=10, lowest_tier_share=share)
        async with World(catalog(limits=limits), tmp_path / f"{places}.db") as world:
            answers = await all_at_once(world, [NewJob("work", tier="low")] * 15)
            assert tally(answers) == {"accepted": places, "queue_full": 15 - places}


# --- I13: when a pending place frees --------------------------------------------------------------
def timed(pending: int = 2) -> Catalog:
    tiers = Tiers([Tier("only", pending=pending)])
    return catalog(Service("work", limit=1, executor=Executor.CALLER), tiers=tiers)


async def work_for(world: World, duration: float) -> None:
    """One job, so that the queue knows how long a job takes."""
    await world.submit(user=BOB)
    lease = await world.claim_one()
    world.clock.advance(seconds(duration))
    await world.engine.complete(lease)


async def frees_in(world: World) -> float:
    """The seconds after which a user with too many pending jobs is told to come back."""
    with pytest.raises(Refused) as caught:
        await world.submit(user=ADA)
    assert caught.value.code == "too_many_pending"
    assert caught.value.frees_at is not None
    return (caught.value.frees_at - world.clock.now()) / seconds(1)


async def test_too_many_pending_are_told_when_the_next_of_their_jobs_ends(tmp_path: Path) -> None:
    """I13: a running job after the usual duration, a queued one after those before it, too."""
    async with World(timed(), tmp_path / "ledger.db") as world:
        for _ in range(5):
            await work_for(world, 40)
        await world.submit_all([NewJob("work", user=ADA)] * 2)
        assert 30 <= await frees_in(world) <= 80
        lease = await world.claim_one()
        world.clock.advance(seconds(10))
        assert await frees_in(world) == pytest.approx(30, abs=1)
        world.clock.advance(seconds(100))
        assert await frees_in(world) == pytest.approx(1)
        await world.engine.complete(lease)
        await world.submit(user=ADA)


async def test_a_user_with_thousands_of_pending_jobs_is_told_when_the_oldest_ends(
    tmp_path: Path,
) -> None:
    """I13: the job that runs is older than the last 1,000."""
    async with World(timed(1200), tmp_path / "ledger.db") as world:
        for _ in range(5):
            await work_for(world, 40)
        await world.engine.submit_many([NewJob("work", user=ADA)] * 1200)
        await world.claim_one()
        world.clock.advance(seconds(10))
        assert await frees_in(world) == pytest.approx(30, abs=1)


async def test_a_delayed_job_does_not_stand_for_those_that_end_before_it(tmp_path: Path) -> None:
    async with World(timed(), tmp_path / "ledger.db") as world:
        await world.submit(user=ADA, run_at=world.clock.now() + seconds(1800))
        await world.submit(user=ADA)
        assert await frees_in(world) < 60


async def test_jobs_without_a_user_are_estimated_by_their_key(tmp_path: Path) -> None:
    async with World(timed(), tmp_path / "ledger.db") as world:
        one, other = Caller("a", "x"), Caller("a", "y")
        for caller in (one, one, other):
            await world.submit(caller=caller)
        await world.claim_one()
        world.clock.advance(seconds(1))
        for caller in (one, other):
            if caller is other:
                await world.submit(caller=other)
            with pytest.raises(Refused) as caught:
                await world.submit(caller=caller)
            assert caught.value.frees_at is not None


async def test_a_resume_beyond_the_quota_is_told_the_same(tmp_path: Path) -> None:
    async with World(quotas(pending=1), tmp_path / "ledger.db") as world:
        job = await world.submit(user=ADA)
        await world.pass_time(3601)
        await world.submit(user=ADA)
        await world.claim_one()
        with pytest.raises(Refused) as caught:
            await world.engine.resume(job)
        refused = caught.value
        assert (refused.code, refused.tier, refused.setting) == (
            "too_many_pending",
            "only",
            "tiers.pending",
        )
        assert refused.frees_at is not None


async def test_a_batch_of_mixed_tiers_does_not_forget_the_hour(tmp_path: Path) -> None:
    """I13: a job of an unlimited tier beside it lets no limited one in."""
    tiers = Tiers([Tier("any"), Tier("few", per_hour=2)])
    async with World(catalog(tiers=tiers), tmp_path / "ledger.db") as world:
        few, unlimited = (NewJob("work", user=ADA, tier=tier) for tier in ("few", "any"))
        assert tally(await world.engine.submit_many([few] * 3))["accepted"] == 2
        answers = await world.engine.submit_many([unlimited, few, few])
        assert tally(answers) == {"accepted": 1, "too_many_this_hour": 2}


async def test_the_hourly_quota_remembers_jobs_whose_records_are_gone(tmp_path: Path) -> None:
    """I13: finished jobs are kept ten minutes, the hour lasts sixty."""
    settings = quotas(Limits(keep_finished=600), per_hour=2)
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work", user=ADA)] * 2)
        await world.drain()
        world.clock.advance(seconds(700))
        await collect(world)
        answers = await all_at_once(world, [NewJob("work", user=ADA)] * 2)
        assert tally(answers) == {"too_many_this_hour": 2}


async def test_a_job_longer_than_its_tier_allows_is_refused(tmp_path: Path) -> None:
    """I13: to the second; nothing is written, and no place is used."""
    async with World(quotas(max_duration=30, pending=1), tmp_path / "ledger.db") as world:
        with pytest.raises(Refused) as caught:
            await world.submit(user=ADA, duration=30.5)
        assert (caught.value.code, caught.value.limit) == ("duration_too_long", 30)
        assert (await world.engine.list_jobs()).jobs == []
        await world.submit(user=ADA, duration=30)


async def test_a_request_that_is_no_request_does_not_harm_its_batch(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        odd = NewJob("work", tags=["a", "list"])  # type: ignore[arg-type]
        first, second, third = await world.engine.submit_many([NewJob("work"), odd, NewJob("work")])
        assert isinstance(second, InvalidInput)
        assert isinstance(first, SubmissionAccepted)
        assert isinstance(third, SubmissionAccepted)


# --- I13: the whole queue -------------------------------------------------------------------------
async def test_the_whole_queue_is_never_overfilled(tmp_path: Path) -> None:
    """I13: 200 users at once, 20 places; what runs has left the line, what returns is in it."""
    async with World(quotas(Limits(waiting=20)), tmp_path / "ledger.db") as world:
        asked = [NewJob("work", user=f"u{n}") for n in range(200)]
        assert tally(await all_at_once(world, asked)) == {"accepted": 20, "queue_full": 180}
        leases = await world.claim(5)
        assert tally(await all_at_once(world, asked))["accepted"] == 5
        await world.engine.complete(leases[0])
        await world.engine.give_back(leases[1])
        assert tally(await all_at_once(world, asked))["accepted"] == 0
        await cancel_a_queued(world)
        await cancel_a_queued(world)
        assert tally(await all_at_once(world, asked))["accepted"] == 1
        await cancel_a_queued(world)
        await world.restart()
        assert tally(await all_at_once(world, asked))["accepted"] == 1


@pytest.mark.parametrize("seed", range(2, 4))
@pytest.mark.parametrize("quota", ["waiting", "pending"])
async def test_after_everything_that_can_happen_there_are_exactly_the_free_places(
    tmp_path: Path, quota: str, seed: int
) -> None:
    """I13: over- and under-admissions at quiesce, of the queue and of each user: 0."""
    dice = random.Random(seed)
    most = 40
    settings = quotas(Limits(waiting=most)) if quota == "waiting" else quotas(pending=most)
    async with World(settings, tmp_path / "ledger.db") as world:
        for _ in range(50):
            await anything(world, dice)
        for user in (ADA, None):
            used = await waiting(world) if quota == "waiting" else await pending(world, user)
            answers = await all_at_once(world, [NewJob("work", user=user)] * (most + 1))
            # who returns to the line, or is replayed, may overfill it
            assert tally(answers)["accepted"] == max(0, most - used)
        await world.healthy()


# --- I13: fan-outs --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (quotas(pending=5), "too_many_pending"),
        (quotas(per_hour=5), "too_many_this_hour"),
        (quotas(Limits(waiting=5)), "queue_full"),
    ],
    ids=["pending", "per hour", "whole queue"],
)
async def test_a_fan_out_counts_its_cells(tmp_path: Path, settings: Catalog, code: str) -> None:
    """I13: one cell too many and nothing of it is written; the job above the cells is not one."""
    async with World(settings, tmp_path / "ledger.db") as world:
        six, five, one = (fan_out(cells) for cells in (6, 5, 1))
        assert tally(await all_at_once(world, [six])) == {code: 1}
        assert (await world.engine.list_jobs()).jobs == []
        assert tally(await all_at_once(world, [five, five])) == {"accepted": 1, code: 1}
        assert tally(await all_at_once(world, [one, NewJob("work", user=ADA)])) == {code: 2}


async def test_each_cell_gives_back_its_own_place(tmp_path: Path) -> None:
    """I13: one of five ends: one gets in. The fan-out is cancelled: the other four follow."""
    async with World(quotas(pending=5), tmp_path / "ledger.db") as world:
        (parent,) = await world.submit_all([fan_out(5)])
        await world.engine.complete(await world.claim_one())
        asked = [NewJob("work", user=ADA)] * 10
        assert tally(await all_at_once(world, asked))["accepted"] == 1
        await world.engine.cancel(parent)
        assert tally(await all_at_once(world, asked))["accepted"] == 4


@pytest.mark.parametrize(
    "settings", [quotas(Limits(waiting=5)), quotas(pending=5)], ids=["whole queue", "pending"]
)
async def test_a_fan_out_that_waits_too_long_gives_back_its_cells_places_and_no_more(
    tmp_path: Path, settings: Catalog
) -> None:
    """I13: three cells leave the line; the job above them never stood in it."""
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit_all([fan_out(3)])
        await world.pass_time(3601)
        assert await waiting(world) == 0
        answers = await all_at_once(world, [NewJob("work", user=ADA)] * 10)
        assert tally(answers)["accepted"] == 5
        await world.healthy()


# --- I13: rates and running jobs ------------------------------------------------------------------
async def test_a_rate_is_never_exceeded_in_any_minute(tmp_path: Path) -> None:
    """I13: 64 claimers get ten starts in any sixty seconds; ends give none back, and neither a
    rebuild nor a restart forgets them."""
    rated = catalog(Service("work", rate=10, fairness=Fairness.NONE))
    async with World(rated, tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 60)
        starts: list[Lease] = []
        for step in range(40):
            found = await claim_together(world)
            starts += found
            for number, lease in enumerate(found):
                if number % 2:
                    await world.engine.complete(lease)
                else:
                    await world.engine.cancel(lease.job)
            if step % 7 == 3:
                await world.engine.rebuild()
            elif step % 7 == 6:
                await world.restart()
            world.clock.advance(seconds(7))
        for lease in starts:
            end = lease.started_at + seconds(60)
            assert sum(lease.started_at <= each.started_at < end for each in starts) <= 10
        assert len(starts) >= 40


async def test_a_rate_slides(tmp_path: Path) -> None:
    """I13: each start counts for a minute from itself."""
    rated = catalog(Service("work", rate=10, fairness=Fairness.NONE))
    async with World(rated, tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 60)
        assert len(await world.claim(4)) == 4
        await world.pass_time(30)
        assert len(await world.claim(60)) == 6
        await world.pass_time(29)
        assert await world.claim(60) == []
        await world.pass_time(2)
        assert len(await world.claim(60)) == 4


async def test_a_providers_rate_is_shared_by_its_services(tmp_path: Path) -> None:
    """I13: ten starts a minute for both together."""
    services = [Service(name, provider="cloud", fairness=Fairness.NONE) for name in ("a", "b")]
    settings = catalog(*services, providers=[Provider("cloud", rate=10)])
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("a"), NewJob("b")] * 30)
        assert len(await claim_together(world)) == 10
        await world.pass_time(59)
        assert await claim_together(world) == []
        await world.pass_time(2)
        assert len(await claim_together(world)) == 10


async def test_no_user_has_more_running_than_allowed(tmp_path: Path) -> None:
    """I13: 64 claimers, two each for three users; an end lets exactly one more start; a rebuild
    and a restart let none."""
    async with World(quotas(max_running_per_user=2), tmp_path / "ledger.db") as world:
        users = (ADA, BOB, None)
        await world.submit_all([NewJob("work", user=users[n % 3]) for n in range(60)])
        leases = await claim_together(world)
        assert await by_user(world, leases) == {ADA: 2, BOB: 2, None: 2}
        await world.engine.rebuild()
        assert await claim_together(world) == []
        await world.restart()
        assert await claim_together(world) == []
        first = leases[0]
        await world.engine.complete(first)
        await world.engine.complete(first)
        owner = (await world.job(first.job)).user
        assert await by_user(world, await claim_together(world)) == {owner: 1}


async def test_a_user_at_the_cap_does_not_hold_up_a_namesake_of_another_tenant(
    tmp_path: Path,
) -> None:
    """I13: the cap is a user's, and a user belongs to one tenant."""
    async with World(quotas(max_running_per_user=1), tmp_path / "ledger.db") as world:
        for tenant in ("a", "b"):
            for _ in range(3):
                await world.submit(caller=Caller(tenant, "key"), user=ADA)
        leases = await claim_together(world)
        assert sorted(lease.tenant for lease in leases) == ["a", "b"]


# --- what the tests say ---------------------------------------------------------------------------
async def all_at_once(world: World, jobs: Sequence[NewJob]) -> list[SubmitOutcome]:
    """Each job in a call of its own, all calls under way together."""

    async def one(job: NewJob) -> SubmitOutcome:
        try:
            return await world.engine.submit(job)
        except FairlaneError as error:
            return error

    return await asyncio.gather(*map(one, jobs))


def tally(answers: Sequence[SubmitOutcome]) -> Counter[str]:
    return Counter(
        answer.code if isinstance(answer, FairlaneError) else "accepted" for answer in answers
    )


async def collect(world: World) -> None:
    """Remove whatever has been kept long enough."""
    for _ in range(300):
        await world.engine.sweep()


def fan_out(cells: int) -> NewJob:
    return NewJob("work", user=ADA, matrix={"n": tuple(map(str, range(cells)))})


async def waiting(world: World) -> int:
    """How many jobs are in line, cells included."""
    count = 0
    async for page in core_of(world.engine).ledger.live(1000):
        count += sum(job.state is State.QUEUED for job in page)
    return count


async def pending(world: World, user: str | None) -> int:
    """How many jobs of this user are queued or running, cells included."""
    count = 0
    async for page in core_of(world.engine).ledger.live(1000):
        count += sum(job.user == user for job in page)
    return count


async def claim_together(world: World) -> list[Lease]:
    workers = [Worker(f"w{n}") for n in range(64)]
    answers = await asyncio.gather(*(world.claim(3, worker) for worker in workers))
    return [lease for answer in answers for lease in answer]


async def by_user(world: World, leases: list[Lease]) -> Counter[str | None]:
    return Counter([(await world.job(lease.job)).user for lease in leases])


async def ways_to_end(world: World, dice: random.Random) -> list[list[Report | None]]:
    """For each of a few running jobs what its worker may say; None = nothing more."""
    return [
        [
            Done(lease),
            Failed(lease, Fault.TRANSIENT),
            Failed(lease, Fault.INVALID_INPUT),
            GivenBack(lease),
            None,
        ]
        for lease in await world.claim(dice.randrange(1, 9))
    ]


async def anything(world: World, dice: random.Random) -> None:
    """One of the things that make the line longer or shorter."""
    engine = world.engine
    roll = dice.randrange(9)
    if roll < 3:
        await all_at_once(world, [NewJob("work"), fan_out(dice.randrange(1, 5))] * 2)
    elif roll < 5:
        await engine.settle([r for r in map(dice.choice, await ways_to_end(world, dice)) if r])
    elif roll == 5:
        jobs = (await engine.list_jobs(limit=200)).jobs
        for job in dice.sample(jobs, min(3, len(jobs))):
            with suppress(FairlaneError):
                await dice.choice([engine.cancel, engine.resume, engine.replay])(job.id)
    elif roll == 6:
        await world.pass_time(dice.choice([5, 20, 4000]))
    elif roll == 7:
        await engine.rebuild()
    else:
        await world.restart()


async def test_a_mixed_batch_counts_whole_in_its_hour(tmp_path: Path) -> None:
    """I13: a job with tags uses up a place of the hour as one without does."""
    tiers = Tiers([Tier("only", per_hour=3)])
    async with World(catalog(tiers=tiers), tmp_path / "ledger.db") as world:
        tagged, plain = NewJob("work", user="ada", tags=("t",)), NewJob("work", user="ada")
        await world.submit_all([tagged, plain, plain])
        outcomes = await world.engine.submit_many([plain] * 3)
        assert all(isinstance(outcome, Refused) for outcome in outcomes), outcomes
