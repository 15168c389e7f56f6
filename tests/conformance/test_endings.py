"""A job ends once, and who comes too late hears how."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fairlane.engine.settle import Done, Failed, GivenBack
from fairlane.errors import Conflict, StaleLease, WrongState
from fairlane.ledger.messages import Settled, Stale
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, Service
from fairlane.model.state import ENDED, Code, State
from fairlane.model.worker import Worker
from fairlane.units import SECOND
from tests.conformance.acts import endings, run_all, states
from tests.core import core_of
from tests.world import World, catalog

ONE_TRY = Service("work", fairness=Fairness.NONE, max_attempts=1)
Verb = Callable[[World, Lease], Awaitable[object]]

VERBS: dict[str, tuple[Verb, State]] = {
    "complete": (lambda world, lease: world.engine.complete(lease), State.COMPLETED),
    "fail": (lambda world, lease: world.engine.fail(lease, Fault.INVALID_INPUT), State.FAILED),
    "bury": (lambda world, lease: world.engine.fail(lease, Fault.TRANSIENT), State.DEAD),
    "cancel": (lambda world, lease: world.engine.cancel(lease.job), State.CANCELLED),
}


async def heard(act: Awaitable[object]) -> str | None:
    """None = it did what it should; otherwise the state it was told instead."""
    try:
        answer = await act
    except Conflict as refusal:
        return refusal.state
    return str(answer.state) if isinstance(answer, Settled) and answer.again else None


async def one_end(world: World, lease: Lease, told: dict[str, str | None]) -> State:
    """Exactly one verb has won, the row is what it made, and all others were told so."""
    final = (await world.job(lease.job)).state
    winners = [name for name, refusal in told.items() if refusal is None]
    assert len(winners) == 1, told
    assert final is VERBS[winners[0]][1]
    assert {refusal for refusal in told.values() if refusal is not None} <= {str(final)}
    assert await endings(world, lease.job) == 1
    assert len(await world.engine.attempts(lease.job)) == 1
    return final


# --- I21 -----------------------------------------------------------------------------------
async def test_whoever_ends_a_job_first_wins_and_the_others_hear_it(tmp_path: Path) -> None:
    """I21: complete, fail, bury and cancel one after another in every order, 120 jobs."""
    dice = random.Random(3)
    won: Counter[State] = Counter()
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        for _ in range(120):
            await world.submit()
            lease = await world.claim_one()
            names = dice.sample(list(VERBS), len(VERBS))
            told = {}
            for name in names:
                told[name] = await heard(VERBS[name][0](world, lease))
            assert told[names[0]] is None
            won[await one_end(world, lease, told)] += 1
        await world.healthy()
    assert set(won) == ENDED


SMALL, LARGE = "x", "x" * 10_000
"""Results that stand in the job's row, and elsewhere: PostgreSQL writes them in different ways."""


@pytest.mark.parametrize("result", [SMALL, LARGE])
@pytest.mark.parametrize("matrix", [None, {"n": ("1",)}], ids=["plain", "cell"])
async def test_the_token_of_a_completed_job_opens_nothing(
    tmp_path: Path, result: str, matrix: dict[str, tuple[str, ...]] | None
) -> None:
    """I3: whatever its worker still says, nobody holds the job, and nothing about it changes."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        engine, ledger = world.engine, core_of(world.engine).ledger
        await world.submit(matrix=matrix)
        lease = await world.claim_one()
        await engine.complete(lease, result)
        before = await engine.view(lease.job), await engine.attempts(lease.job)
        assert before[0].job.token is None
        assert await engine.leases.holding([(lease.job, lease.token)]) == frozenset()
        assert await ledger.held() == []
        assert await ledger.load() == (0, 0)
        assert isinstance(await ledger.lease(lease.job, lease.token), Stale)
        assert (await engine.heartbeat(Worker("w"), [lease])).lost == [lease.job]
        with pytest.raises(StaleLease):
            await engine.progress(lease, 50)
        for report in (Failed(lease, Fault.TRANSIENT), GivenBack(lease)):
            assert await engine.settle([report]) == [Stale(State.COMPLETED)]
        for other in ("another result", LARGE + "other"):
            (again,) = await engine.settle([Done(lease, other)])
            assert isinstance(again, Settled)
            assert again.again
        assert (await engine.view(lease.job), await engine.attempts(lease.job)) == before
        assert await ledger.load() == (0, 0)
        await world.healthy()


@pytest.mark.parametrize("seed", range(2))
async def test_verbs_that_race_end_a_job_once(tmp_path: Path, seed: int) -> None:
    """I21: 120 jobs, four verbs at once on each, in random order and company: one winner each."""
    dice = random.Random(seed)
    won: Counter[State] = Counter()
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        for _ in range(30):
            await world.submit_all([NewJob("work") for _ in range(4)])
            leases = await world.claim(4)
            told: dict[str, dict[str, str | None]] = {lease.job: {} for lease in leases}

            async def race(name: str, lease: Lease, told: dict[str, dict[str, str | None]]) -> None:
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
                told[lease.job][name] = await heard(VERBS[name][0](world, lease))

            acts = [(name, lease) for name in VERBS for lease in leases]
            dice.shuffle(acts)
            await asyncio.gather(*(race(name, lease, told) for name, lease in acts))
            for lease in leases:
                won[await one_end(world, lease, told[lease.job])] += 1
        await world.healthy()
    assert len(won) > 1, "always the same winner: this was no race"


@pytest.mark.parametrize("seed", range(2))
async def test_workers_owners_and_sweeps_that_race_end_a_job_once(
    tmp_path: Path, seed: int
) -> None:
    """I21: with expired leases, give-backs, give-ups and reapers in the race: one terminal state,
    one attempt row a lease, nothing runs afterwards."""
    dice = random.Random(seed)
    outcomes: Counter[State] = Counter()
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        for _ in range(35):
            jobs = await world.submit_all(
                [NewJob("work", max_wait=dice.choice([0, 14, 15]) * SECOND) for _ in range(4)]
            )
            leases = await world.claim(dice.randrange(2, 5))
            world.clock.advance(15 * SECOND)
            acts: list[Awaitable[object]] = [world.engine.sweep() for _ in range(2)]
            acts += [heard(world.engine.cancel(job)) for job in jobs if dice.random() < 0.5]
            for lease in leases:
                acts.append(heard(world.engine.complete(lease)))
                acts.append(heard(world.engine.give_back(lease)))
                acts.append(heard(world.engine.fail(lease, Fault.QUALITY)))
            dice.shuffle(acts)
            await asyncio.gather(*acts)
            for job in jobs:
                found = await world.job(job)
                assert await endings(world, job) == (0 if found.live else 1)
                assert found.state is not State.RUNNING
                tries = await world.engine.attempts(job)
                assert len({each.fence for each in tries}) == len(tries) == found.fence
                outcomes[found.state] += 1
            left = [job for job in jobs if (await world.job(job)).live]
            assert sorted(await run_all(world)) == sorted(left)
        await world.healthy()
    assert {State.COMPLETED, State.FAILED, State.CANCELLED} <= set(outcomes)


async def test_a_reaped_worker_hears_where_its_job_is(tmp_path: Path) -> None:
    """I21: its lease ran out: dead, and its late success changes nothing."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        job = await world.submit()
        lease = await world.claim_one()
        await world.pass_time(15)
        assert await heard(world.engine.complete(lease, {"late": True})) == "dead"
        found = await world.engine.view(job)
        assert found.job.state is State.DEAD
        assert found.context == {"step_0_work__attempts": 1}
        assert [each.outcome for each in await world.engine.attempts(job)] == [Outcome.LOST]


async def test_a_late_worker_cannot_end_the_attempt_of_another(tmp_path: Path) -> None:
    """I21: the result that counts is that of whoever holds the lease now."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        late = await world.claim_one(Worker("late"))
        await world.pass_time(15)
        await world.pass_time(2)
        lease = await world.claim_one(Worker("new"))
        for verb in (VERBS["complete"][0], VERBS["fail"][0]):
            assert await heard(verb(world, late)) == "running"
        assert await heard(world.engine.give_back(late)) == "running"
        assert (await world.engine.heartbeat(Worker("late"), [late])).lost == [job]
        await world.engine.complete(lease, {"by": "new"})
        assert (await world.engine.view(job)).context["step_0_work"]["data"] == {"by": "new"}


async def test_an_ending_that_is_repeated_gets_the_same_answer(tmp_path: Path) -> None:
    """I21: the answer was lost, the worker asks again: no error and no second effect. Who says
    something else about the same lease is refused."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        job = await world.submit()
        lease = await world.claim_one()
        first = await world.engine.complete(lease)
        again = await world.engine.complete(lease)
        assert (again.state, again.again) == (first.state, True)
        with pytest.raises(StaleLease):
            await world.engine.fail(lease)
        assert await endings(world, job) == 1


async def test_progress_is_taken_from_the_lease_that_holds_and_no_other(tmp_path: Path) -> None:
    """I21: percent and text while it runs; refused, naming the state, when it is over."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        lease = await world.claim_one()
        await world.engine.progress(lease, 40, "almost half")
        found = (await world.job(job)).progress
        assert found is not None
        assert (found.percent, found.text, found.at) == (40, "almost half", world.clock.now())
        await world.engine.cancel(job)
        with pytest.raises(StaleLease) as refused:
            await world.engine.progress(lease, 50)
        assert refused.value.state == "cancelled"
        assert (await world.job(job)).progress == found


async def test_cancel_of_what_is_over_names_how_it_ended(tmp_path: Path) -> None:
    """I21: 409 with the winner, also the second cancel."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        for name in VERBS:
            job = await world.submit()
            await VERBS[name][0](world, await world.claim_one())
            with pytest.raises(WrongState) as refused:
                await world.engine.cancel(job)
            assert refused.value.state == VERBS[name][1]


# --- I23 -----------------------------------------------------------------------------------
async def test_fifty_replays_of_a_dead_job_start_it_once(tmp_path: Path) -> None:
    """I23: 1 success, 49 refused naming the state; one execution follows."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.engine.fail(await world.claim_one())
        for round_ in range(3):
            assert (await world.job(job)).state is State.DEAD
            told = await asyncio.gather(*(heard(world.engine.replay(job)) for _ in range(50)))
            assert Counter(told) == {None: 1, "queued": 49}
            (lease,) = await world.claim(10)
            assert (lease.job, lease.attempt, lease.fence) == (job, 1, round_ + 2)
            assert await heard(world.engine.replay(job)) == "running"
            await world.engine.fail(lease)
        await world.healthy()


async def test_replays_and_workers_that_race_run_each_failure_once(tmp_path: Path) -> None:
    """I23: replays beside workers that claim and fail: executions = first try + accepted ones."""
    dice = random.Random(5)
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(5)])
        runs: Counter[str] = Counter()
        replays: Counter[str] = Counter()

        async def run(worker: str) -> None:
            for lease in await world.engine.claim(Worker(worker), 2):
                runs[lease.job] += 1
                await world.engine.fail(lease)

        async def replay(job: str) -> None:
            if await heard(world.engine.replay(job)) is None:
                replays[job] += 1

        for _ in range(20):
            acts = [replay(dice.choice(jobs)) for _ in range(15)] + [run(f"w{i}") for i in range(4)]
            dice.shuffle(acts)
            await asyncio.gather(*acts)
        while leases := await world.claim(10):
            for lease in leases:
                runs[lease.job] += 1
                await world.engine.fail(lease)
        assert runs == {job: 1 + replays[job] for job in jobs}
        assert sum(replays.values()) > 10
        assert await states(world, jobs) == {State.DEAD: 5}


async def test_fifty_resumes_of_a_failed_job_start_it_once(tmp_path: Path) -> None:
    """I23: likewise for resume: 1 success, 49 refused."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(max_wait=10 * SECOND)
        await world.pass_time(10)
        told = await asyncio.gather(*(heard(world.engine.resume(job)) for _ in range(50)))
        assert Counter(told) == {None: 1, "queued": 49}
        assert await run_all(world) == [job]
        assert (await world.job(job)).state is State.COMPLETED


async def test_a_replay_asked_for_under_one_name_is_answered_again(tmp_path: Path) -> None:
    """I23: the same request again, its answer lost, is no second start and no error."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.engine.fail(await world.claim_one())
        for _ in range(3):
            await world.engine.replay(job, op="monday")
        assert await run_all(world) == [job]
        await world.engine.replay(job, op="monday")
        assert await world.claim() == []
        assert (await world.job(job)).state is State.COMPLETED


async def test_the_name_of_one_move_is_not_that_of_another(tmp_path: Path) -> None:
    """I12: a cancel under the name of the replay before it is a cancel, not that replay again."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.engine.fail(await world.claim_one())
        await world.engine.replay(job, op="monday")
        await world.engine.cancel(job, op="monday")
        assert (await world.job(job)).state is State.CANCELLED
        await world.engine.cancel(job, op="monday")


async def test_only_what_can_go_on_is_resumed(tmp_path: Path) -> None:
    """I23: resume is for jobs that found no room; dead and invalid ones need a replay."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        dead, invalid = await world.submit(), await world.submit()
        first, second = await world.claim(2)
        await world.engine.fail(first)
        await world.engine.fail(second, Fault.INVALID_INPUT)
        found = await world.job(invalid)
        assert found.error is not None
        assert found.error.code is Code.INVALID_INPUT
        for job, state in ((dead, "dead"), (invalid, "failed")):
            assert await heard(world.engine.resume(job)) == state
            await world.engine.replay(job)
        assert await run_all(world) == [dead, invalid]


async def test_a_replay_gives_all_attempts_again_and_a_resume_does_not(tmp_path: Path) -> None:
    """I23: replay resets the count; resume goes on counting."""
    service = Service("work", fairness=Fairness.NONE, max_attempts=3)
    async with World(catalog(service), tmp_path / "ledger.db") as world:
        job = await world.submit(max_wait=30 * SECOND)
        await world.engine.fail(await world.claim_one())
        await world.pass_time(40)
        assert (await world.job(job)).state is State.FAILED
        await world.engine.resume(job)
        lease = await world.claim_one()
        assert lease.attempt == 2
        await world.engine.fail(lease, Fault.INVALID_INPUT)
        await world.engine.replay(job)
        assert (await world.claim_one()).attempt == 1
