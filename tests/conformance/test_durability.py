"""Accepted is never lost (I1), the stale are refused (I3), there is one lease at a time (I5), and
what is run again after a lost answer has one effect (I6)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from fairlane.clock import seconds
from fairlane.engine.settle import Done, Failed, GivenBack, Report
from fairlane.errors import StaleLease
from fairlane.ledger.messages import (
    Filter,
    Reopened,
    Replayed,
    Settled,
    Skipped,
    Stale,
    SubmissionAccepted,
    Unconfirmed,
    Unwritten,
    WrittenOrNot,
)
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.event import EventType
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease, Slot
from fairlane.model.service import Fairness, Service
from fairlane.model.state import Move, State
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.quotas import Quota
from tests.core import core_of
from tests.ledger_items import (
    advance,
    completion,
    confirmation,
    request,
    retry,
    submission,
    with_cells,
)
from tests.world import World, catalog

T = TypeVar("T")

FIRST, SECOND = Worker("first"), Worker("second")
PUBLISHED_WITHIN = 5
"""Sweeps, one a second, after which whatever a crash has left is in line."""
RECONCILED_WITHIN = 70
"""Sweeps after which an index that forgot something has it again."""


def work(**settings: object) -> Service:
    return Service("work", fairness=Fairness.NONE, **settings)  # type: ignore[arg-type]


# --- I1: accepted is never lost -------------------------------------------------------------------
async def test_every_accepted_job_survives_a_restart_in_its_state(tmp_path: Path) -> None:
    """I1: queued, delayed, running, retrying, at its second step, fanned out: all are there again,
    and all reach their end."""
    async with assembly_line(tmp_path) as world:
        jobs = await one_job_in_every_live_state(world)
        before = {job: await world.job(job) for job in jobs}
        await world.restart()
        assert {job: await world.job(job) for job in jobs} == before
        await world.drain()
        assert {(await world.job(job)).state for job in jobs} == {State.COMPLETED}
        await world.healthy()


async def test_every_accepted_job_survives_the_loss_of_the_index(tmp_path: Path) -> None:
    """I1: thrown away and rebuilt from the ledger, the index hands out every job, and leases from
    before the rebuild go on."""
    async with assembly_line(tmp_path) as world:
        jobs = await one_job_in_every_live_state(world)
        lease = await world.claim_one()
        await world.engine.rebuild()
        assert (await world.engine.heartbeat(Worker("w"), [lease])).lost == []
        await world.engine.complete(lease)
        await world.drain()
        assert {(await world.job(job)).state for job in jobs} == {State.COMPLETED}
        await world.healthy()


async def test_jobs_submitted_while_the_index_is_rebuilt_are_all_run(tmp_path: Path) -> None:
    """I1: submits go on during a rebuild, and nothing that came in meanwhile is overlooked."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        early = await world.submit_all([NewJob("work")] * 20)

        async def submit_some() -> list[str]:
            return [await world.submit() for _ in range(20)]

        *_, a, b = await asyncio.gather(
            world.engine.rebuild(), world.engine.rebuild(), submit_some(), submit_some()
        )
        claimed = [lease.job for lease in await world.claim(100)]
        assert Counter(claimed) == Counter([*early, *a, *b])


async def test_a_job_whose_process_died_before_publishing_is_published_by_a_sweep(
    tmp_path: Path,
) -> None:
    """I1: committed, never told to the index, the process lives on. Alone or in a batch."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        items = [submission(world) for _ in range(4)]
        await core_of(world.engine).ledger.submit(items[:1])
        await core_of(world.engine).ledger.submit(items[1:])
        assert await world.claim() == []
        await world.pass_time(PUBLISHED_WITHIN, sweeps=PUBLISHED_WITHIN)
        found = [lease.job for lease in await world.claim(9)]
        assert sorted(found) == sorted(item.id for item in items)


async def test_a_job_whose_process_died_before_publishing_is_published_by_the_restart(
    tmp_path: Path,
) -> None:
    """I1: committed, never told to the index, the process starts again."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        item = submission(world)
        await core_of(world.engine).ledger.submit([item])
        await world.restart()
        assert (await world.claim_one()).job == item.id
        assert await world.claim() == []


async def test_publishing_one_job_does_not_make_the_queue_forget_its_neighbour(
    tmp_path: Path,
) -> None:
    """I1: two submits share a commit; one is published, the other's process dies."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        ledger = core_of(world.engine).ledger
        lost: set[str] = set()
        kept: set[str] = set()

        async def lose(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            item = submission(world)
            lost.add(item.id)
            await ledger.submit([item])

        async def keep() -> None:
            kept.add(await world.submit())

        for turns in range(100):
            await asyncio.gather(*[keep() for _ in range(5)], *[lose(turns % 5) for _ in range(5)])
            rows = [set(jobs) for _, jobs in await ledger.outbox(1000)]
            if turns >= 5 and any(jobs & lost and jobs & kept for jobs in rows):
                break
        else:
            pytest.fail("no two submits have shared a commit")
        await world.submit()  # a later commit takes away what the index is known to have
        await world.pass_time(PUBLISHED_WITHIN, sweeps=PUBLISHED_WITHIN)
        claimed = {lease.job for lease in await world.claim(2000)}
        assert claimed > lost | kept


async def test_a_submit_whose_caller_went_away_is_run_or_was_never_accepted(
    tmp_path: Path,
) -> None:
    """I1: whatever is in the ledger runs, wherever the caller was cut off."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        known = set[str]()
        for turns in itertools.chain(range(8), (1 << n for n in itertools.count(3))):
            task = asyncio.create_task(world.submit())
            for _ in range(turns):
                if not task.done():
                    await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            known = {job.id for job in (await world.engine.list_jobs()).jobs}
            if known and turns >= 8:
                break
        await world.pass_time(PUBLISHED_WITHIN, sweeps=PUBLISHED_WITHIN)
        known = {job.id for job in (await world.engine.list_jobs()).jobs}
        assert {lease.job for lease in await world.claim(100)} == known


async def test_a_job_that_the_index_has_forgotten_is_found_again(tmp_path: Path) -> None:
    """I1: members deleted from the index come back by themselves."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work")] * 50)
        await core_of(world.engine).index.take([(job, 1 << 62) for job in jobs[::10]])
        for _ in range(RECONCILED_WITHIN):
            await world.pass_time(1)
        assert {lease.job for lease in await world.claim(100)} == set(jobs)


async def test_a_job_proposed_but_never_confirmed_returns_to_the_line(tmp_path: Path) -> None:
    """I1: the process died between the index's proposal and the ledger's confirmation."""
    async with World(catalog(work(limit=1)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        core = core_of(world.engine)
        picks = await core.index.claim(FIRST, Loaded(), 1, core.now(), core.epoch)
        (proposal,) = picks.proposals
        late = confirmation(world, await world.job(job), proposal.slots)
        assert await world.claim() == []
        await world.pass_time(6)
        assert isinstance(only(await core.ledger.confirm([late])), Unconfirmed)
        assert (await world.claim_one()).job == job
        assert isinstance(only(await core.ledger.confirm([late])), Unconfirmed)


async def test_a_claim_whose_worker_never_heard_of_it_runs_again(tmp_path: Path) -> None:
    """I1: granted, then the answer was lost; after its lease the job runs elsewhere."""
    async with World(catalog(work(limit=1)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        (granted,) = (
            await core_of(world.engine).ledger.confirm(
                [confirmation(world, await world.job(job), [Slot("svc:work", 1)])]
            )
        ).outcomes
        assert isinstance(granted, Lease)
        assert await world.claim() == []
        await world.pass_time(16)
        await world.pass_time(3)
        again = await world.claim_one()
        assert (again.job, again.attempt) == (job, 2)
        await world.engine.complete(again)
        await world.healthy()


async def test_a_retry_that_was_committed_but_not_published_runs(tmp_path: Path) -> None:
    """I1: the process died after settling in the ledger, before the index knew."""
    async with World(catalog(work(limit=1)), tmp_path / "ledger.db") as world:
        await world.submit()
        lease = await world.claim_one()
        now = world.clock.now()
        await core_of(world.engine).ledger.settle([retry(lease, now, ready_at=now)])
        for _ in range(PUBLISHED_WITHIN + 2):
            await world.pass_time(1)
        again = await world.claim_one()
        assert (again.job, again.attempt) == (lease.job, 2)


# --- I3: fencing ----------------------------------------------------------------------------------
async def test_a_stale_worker_is_refused_whatever_it_says_while_the_second_runs(
    tmp_path: Path,
) -> None:
    """I3: complete, fail, give back, progress and renew of a lost lease change nothing."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        stale, fresh = await lost_and_taken_over(world)
        before = await world.job(stale.job)
        await refused_whatever_it_says(world, stale, "running")
        assert await world.job(stale.job) == before
        await world.engine.progress(fresh, 50, "second")
        await world.engine.complete(fresh, "second")
        assert await output(world, stale.job) == "second"


async def test_a_stale_worker_is_refused_whatever_it_says_after_the_second_is_done(
    tmp_path: Path,
) -> None:
    """I3: the stored result is the second's, its progress too."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        stale, fresh = await lost_and_taken_over(world)
        await world.engine.progress(fresh, 90, "second")
        await world.engine.complete(fresh, "second")
        before = await world.job(stale.job)
        await refused_whatever_it_says(world, stale, "completed")
        assert await world.job(stale.job) == before
        assert await output(world, stale.job) == "second"
        outcomes = [attempt.outcome for attempt in await world.engine.attempts(stale.job)]
        assert outcomes == [Outcome.LOST, Outcome.COMPLETED]


async def test_a_stale_worker_is_refused_while_its_job_waits_for_the_next_try(
    tmp_path: Path,
) -> None:
    """I3: nobody runs the job, the lease is gone all the same."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit()
        stale = await world.claim_one(FIRST)
        await world.pass_time(16)
        before = await world.job(stale.job)
        await refused_whatever_it_says(world, stale, "queued")
        assert await world.job(stale.job) == before


async def test_a_worker_can_ask_which_of_its_leases_still_hold(tmp_path: Path) -> None:
    """All at once and without writing: what was settled, cancelled or taken back does not."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 5)
        settled, cancelled, lost, again, held = leases = await world.claim(5)
        assert await holding(world, leases) == {lease.token for lease in leases}
        assert await holding(world, []) == frozenset()
        await world.engine.complete(settled)
        await world.engine.cancel(cancelled.job)
        await world.engine.fail(lost)
        await world.engine.give_back(again)
        second = await world.claim_one()
        assert second.job == again.job
        assert await holding(world, [*leases, second]) == {held.token, second.token}
        forged = held._replace(token=second.token)
        assert await holding(world, [forged]) == frozenset()


async def test_a_renewal_after_the_end_of_the_lease_does_not_revive_it(tmp_path: Path) -> None:
    """I3: late by a microsecond is late, also before anybody has reaped."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit()
        lease = await world.claim_one(FIRST)
        world.clock.advance(FIRST.lease - 1)
        assert (await world.engine.heartbeat(FIRST, [lease])).lost == []
        world.clock.advance(FIRST.lease)
        assert (await world.engine.heartbeat(FIRST, [lease])).lost == [lease.job]
        await world.engine.sweep()
        assert (await world.job(lease.job)).state is State.QUEUED


async def test_a_token_opens_only_the_lease_it_was_made_for(tmp_path: Path) -> None:
    """I3: a guessed token, and a real token of another job, are refused."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 2)
        mine, other = await world.claim(2)
        before = await world.job(other.job)
        for forged in (other._replace(token=mine.token), other._replace(token="0" * 32)):
            await refused_whatever_it_says(world, forged, "running")
        assert await world.job(other.job) == before
        ledger = core_of(world.engine).ledger
        assert await ledger.lease(other.job, mine.token) == Stale(State.RUNNING)
        assert isinstance(await ledger.lease(other.job, other.token), Lease)
        await world.engine.complete(other, "other")
        await world.engine.complete(mine, "mine")


async def test_in_a_thousand_races_the_result_is_always_the_second_workers(
    tmp_path: Path,
) -> None:
    """I3: 1,000 jobs, each settled by a stale and by a fresh worker at the same time, in any
    order, in any form; stale writes accepted: 0."""
    dice = random.Random(3)
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 1000)
        stale = await world.claim(1000, FIRST)
        await world.pass_time(16, sweeps=3)
        await world.pass_time(3)
        fresh = await claim_until_none(world, SECOND)
        assert len(stale) == len(fresh) == 1000
        reports: list[Report] = [Done(lease, "second") for lease in fresh]
        reports += [late_report(lease, dice) for lease in stale]
        dice.shuffle(reports)
        batches = [reports[i : i + 50] for i in range(0, 2000, 50)]
        answers = await asyncio.gather(*map(world.engine.settle, batches))
        for batch, answer in zip(batches, answers, strict=True):
            for report, outcome in zip(batch, answer, strict=True):
                assert isinstance(outcome, Settled) == (report.lease.worker == "second")
        assert {await output(world, lease.job) for lease in stale} == {"second"}
        await world.healthy()


async def test_a_result_and_the_end_of_the_lease_race_and_exactly_one_wins(
    tmp_path: Path,
) -> None:
    """I3: 200 results arrive while their leases are being taken back; what the worker hears is
    what the ledger keeps."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work")] * 200)
        leases = await world.claim(200, FIRST)
        world.clock.advance(seconds(16))
        sweeping = asyncio.create_task(world.engine.sweep())
        answers = []
        for start in range(0, 200, 10):
            reports = [Done(lease, "late") for lease in leases[start : start + 10]]
            answers += await world.engine.settle(reports)
        await sweeping
        for lease, answer in zip(leases, answers, strict=True):
            (attempt,) = await world.engine.attempts(lease.job)
            state = (await world.job(lease.job)).state
            if isinstance(answer, Settled):
                assert (state, attempt.outcome) == (State.COMPLETED, Outcome.COMPLETED)
            else:
                assert (state, attempt.outcome) == (State.QUEUED, Outcome.LOST)
                assert await output(world, lease.job) is None


# --- I5: at most one live lease -------------------------------------------------------------------
async def test_two_proposals_of_one_job_become_one_lease(tmp_path: Path) -> None:
    """I5: twenty claims of the same job at the same rev, together and in one batch: one wins."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.job(await world.submit())
        ledger = core_of(world.engine).ledger
        rivals = [confirmation(world, job) for _ in range(20)]
        batch, alone = rivals[:10], rivals[10:]
        written = await asyncio.gather(
            ledger.confirm(batch), *(ledger.confirm([item]) for item in alone)
        )
        leases = [one for answer in written for one in answer.outcomes if isinstance(one, Lease)]
        assert len(leases) == 1
        for later in (job, await world.job(job.id)):
            assert isinstance(only(await ledger.confirm([confirmation(world, later)])), Unconfirmed)
        assert (await world.job(job.id)).token == leases[0].token


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_index_is_made_to_believe_no_job_has_two_leases(
    tmp_path: Path, seed: int
) -> None:
    """I5: forged and repeated members of any rev, place, lane and user are proposed and refused;
    and no job is lost over it."""
    dice = random.Random(seed)
    workers = [Worker(f"w{n}") for n in range(8)]
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work")] * 30)
        running: dict[str, Lease] = {}
        for _ in range(60):
            await forge_members(world, dice.sample(jobs, 10), dice)
            grants = await asyncio.gather(*(world.claim(2, w) for w in dice.sample(workers, 4)))
            for lease in [lease for each in grants for lease in each]:
                assert lease.job not in running, "two live leases"
                running[lease.job] = lease
            for job in dice.sample(sorted(running), len(running) // 2):
                await world.engine.settle([any_report(running.pop(job), dice)])
            world.clock.advance(seconds(1))
        for lease in running.values():
            await world.engine.complete(lease)
        for _ in range(RECONCILED_WITHIN):
            await world.pass_time(1)
        await world.drain()
        assert await world.live() == 0
        for job in jobs:
            await one_lease_after_the_other(world, job)
        await world.healthy()


async def test_a_job_is_not_granted_before_its_time_whatever_the_index_says(
    tmp_path: Path,
) -> None:
    """I5: an entry forged to be ready now does not shorten a delay."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(run_at=world.clock.now() + seconds(60))
        await forge_ready(world, job)
        assert await world.claim() == []
        world.clock.advance(seconds(61))
        assert (await world.claim_one()).job == job


async def test_a_proposal_of_an_earlier_life_of_the_index_is_refused(tmp_path: Path) -> None:
    """I5: made before a rebuild, confirmed after it: only the new index may propose."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        late = confirmation(world, await world.job(job))
        await world.engine.rebuild()
        assert isinstance(only(await core_of(world.engine).ledger.confirm([late])), Unconfirmed)
        assert (await world.claim_one()).job == job


@pytest.mark.parametrize("lie", [{"lane": "play||"}, {"tier": "high"}, {"user": "u:mallory"}])
async def test_a_proposal_that_lies_about_its_job_is_refused(
    tmp_path: Path, lie: dict[str, str]
) -> None:
    """I5: another service, a better tier, another user: the ledger knows better."""
    async with World(catalog(work(), Service("play")), tmp_path / "ledger.db") as world:
        job = await world.job(await world.submit())
        ledger = core_of(world.engine).ledger
        honest = confirmation(world, job)
        forged = honest._replace(**lie)  # type: ignore[arg-type]
        assert isinstance(only(await ledger.confirm([forged])), Unconfirmed)
        assert (await world.job(job.id)) == job
        assert isinstance(only(await ledger.confirm([honest])), Lease)


async def test_leases_of_one_job_follow_each_other_with_growing_fences(tmp_path: Path) -> None:
    """I5: lost, given back, failed, then done: four leases, never two at a time."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.claim_one()
        await world.pass_time(16)
        await world.pass_time(3)
        await world.engine.give_back(await world.claim_one())
        await world.engine.fail(await world.claim_one())
        await world.pass_time(60)
        await world.engine.complete(await world.claim_one())
        attempts = await one_lease_after_the_other(world, job)
        assert attempts == [Outcome.LOST, Outcome.RELEASED, Outcome.FAILED, Outcome.COMPLETED]


# --- I6: run again after a lost answer ------------------------------------------------------------
class Twice(Protocol):
    """A way to run the same thing again, as who lost the first answer does."""

    async def __call__(self, world: World, verb: Callable[[], Awaitable[T]]) -> tuple[T, T]: ...


async def together(world: World, verb: Callable[[], Awaitable[T]]) -> tuple[T, T]:
    first, second = await asyncio.gather(verb(), verb())
    return first, second


async def later(world: World, verb: Callable[[], Awaitable[T]]) -> tuple[T, T]:
    return await verb(), await verb()


async def after_a_restart(world: World, verb: Callable[[], Awaitable[T]]) -> tuple[T, T]:
    first = await verb()
    await world.restart()
    return first, await verb()


in_every_way = pytest.mark.parametrize(
    "twice", [together, later, after_a_restart], ids=lambda way: way.__name__
)


def only(written: WrittenOrNot[T]) -> T:
    (outcome,) = written.outcomes
    return outcome


@in_every_way
@pytest.mark.parametrize("key", [None, ("scope", "key", "hash")])
async def test_a_submit_run_again_is_one_job_that_counts_once(
    tmp_path: Path, twice: Twice, key: tuple[str, str, str] | None
) -> None:
    """I6: the same id again is the same job; it uses up no quota and is no reuse of its own key."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        quota = Quota(pending=2, per_hour=2, waiting=2)
        item = submission(world, user="ada", quota=quota, idempotency=key)
        first, second = await twice(world, lambda: core_of(world.engine).ledger.submit([item]))
        answers = only(first), only(second)
        assert all(isinstance(answer, SubmissionAccepted | Replayed) for answer in answers), answers
        assert [job.id for job in (await world.engine.list_jobs()).jobs] == [item.id]
        other = submission(world, user="ada", quota=quota)
        assert only(await core_of(world.engine).ledger.submit([other])) == SubmissionAccepted(
            other.id, other.common.tier
        )
        await world.restart()
        assert sorted(lease.job for lease in await world.claim(5)) == sorted([item.id, other.id])


@in_every_way
async def test_a_fan_out_run_again_has_its_cells_once(tmp_path: Path, twice: Twice) -> None:
    """I6: job and cells are written together, once."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        item = with_cells(submission(world), world, 3)
        first, second = await twice(world, lambda: core_of(world.engine).ledger.submit([item]))
        assert only(first) == only(second) == SubmissionAccepted(item.id, item.common.tier)
        cells = (await world.engine.list_jobs(Filter(parent=item.id))).jobs
        assert sorted(cell.id for cell in cells) == sorted(cell.id for cell in item.cells)
        await world.restart()
        assert await world.drain() == 3
        await world.healthy()


@in_every_way
async def test_a_claim_run_again_is_the_same_lease(tmp_path: Path, twice: Twice) -> None:
    """I6: the same token again is answered with the same lease; one attempt, one slot."""
    async with World(catalog(work(limit=2)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        item = confirmation(world, await world.job(job), [Slot("svc:work", 1)])
        first, second = await twice(world, lambda: core_of(world.engine).ledger.confirm([item]))
        lease = only(first)
        assert isinstance(lease, Lease)
        assert only(second) == lease
        found = await world.job(job)
        assert (found.attempt, found.fence, found.token) == (1, 1, item.token)
        assert len(await core_of(world.engine).ledger.slots()) == 1
        await world.engine.complete(lease)
        await world.healthy()


async def test_a_claim_run_again_after_its_lease_was_lost_is_refused(tmp_path: Path) -> None:
    """I6: a retry that comes too late does not bring the lease back."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        item = confirmation(world, await world.job(job))
        ledger = core_of(world.engine).ledger
        assert isinstance(only(await ledger.confirm([item])), Lease)
        await world.pass_time(16)
        await world.pass_time(3)
        assert isinstance(only(await ledger.confirm([item])), Unconfirmed)
        assert (await world.job(job)).state is State.QUEUED


@in_every_way
async def test_a_result_run_again_is_stored_once(tmp_path: Path, twice: Twice) -> None:
    """I6: completed twice: one attempt, one set of events, the same answer."""
    async with World(catalog(work(limit=1)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        item = completion(await world.claim_one(), world.clock.now(), "result")
        first, second = await twice(world, lambda: core_of(world.engine).ledger.settle([item]))
        assert answer_of(first) == answer_of(second) == (State.COMPLETED, 3)
        assert await output(world, job) == "result"
        assert len(await world.engine.attempts(job)) == 1
        assert (await kinds(world, job)).count(EventType.JOB_COMPLETE) == 1
        await world.healthy()


@in_every_way
async def test_a_step_run_to_its_end_again_has_one_successor(tmp_path: Path, twice: Twice) -> None:
    """I6: the second step waits once, and the first one's output stays what it was."""
    async with assembly_line(tmp_path) as world:
        job = await world.submit("line")
        item = advance(await world.claim_one(), world.clock.now(), "first step")
        first, second = await twice(world, lambda: core_of(world.engine).ledger.settle([item]))
        assert answer_of(first) == answer_of(second) == (State.QUEUED, 3)
        await world.restart()
        assert (await world.job(job)).step == 1
        (lease,) = await world.claim(5)
        assert lease.context["step_0_cut"]["data"] == "first step"
        assert (lease.step, len(await world.engine.attempts(job))) == (1, 1)


@in_every_way
async def test_a_failure_run_again_costs_one_attempt(tmp_path: Path, twice: Twice) -> None:
    """I6: failed twice under one token is failed once."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        now = world.clock.now()
        item = retry(await world.claim_one(), now, ready_at=now)
        first, second = await twice(world, lambda: core_of(world.engine).ledger.settle([item]))
        assert answer_of(first) == answer_of(second) == (State.QUEUED, 3)
        found = await world.job(job)
        assert (found.attempt, found.rev) == (1, 3)
        assert (await kinds(world, job)).count(EventType.JOB_RETRY) == 1


@in_every_way
async def test_a_skip_run_again_is_charged_once(tmp_path: Path, twice: Twice) -> None:
    """I6: one charge, one move."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.engine.add_credits("ada", 10, "gift")
        job = await world.submit(user="ada")
        item = request(world, job)
        first, second = await twice(world, lambda: core_of(world.engine).ledger.skip(item, 3))
        assert all(isinstance(only(each), Skipped) for each in (first, second))
        assert await world.engine.balance("ada") == 7
        assert (await kinds(world, job)).count(EventType.JOB_SKIPPED) == 1
        await world.healthy()


@pytest.mark.parametrize("move", [Move.RESUME, Move.REPLAY])
@in_every_way
async def test_a_reopening_run_again_is_one_reopening(
    tmp_path: Path, twice: Twice, move: Move
) -> None:
    """I6: resumed or replayed twice under one name: back in line once."""
    async with World(catalog(work(max_wait=10)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.pass_time(11)
        assert (await world.job(job)).state is State.FAILED
        item = request(world, job)
        first, second = await twice(
            world, lambda: core_of(world.engine).ledger.reopen(item, move, Quota(waiting=1))
        )
        assert all(isinstance(only(each), Reopened) for each in (first, second))
        assert (await kinds(world, job)).count(EventType.JOB_REOPENED) == 1
        await world.restart()
        assert await world.drain() == 1


@in_every_way
async def test_a_cancel_run_again_is_one_cancel(tmp_path: Path, twice: Twice) -> None:
    """I6: the second hears no error, and nothing is written twice."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        await world.claim_one()
        item = request(world, job)
        first, second = await twice(
            world, lambda: core_of(world.engine).ledger.cancel(item, frozenset())
        )
        assert all(isinstance(only(each), list) for each in (first, second))
        found = await world.job(job)
        assert (found.state, found.rev) == (State.CANCELLED, 3)
        assert (await kinds(world, job)).count(EventType.JOB_CANCELLED) == 1
        assert len(await world.engine.attempts(job)) == 1


@in_every_way
async def test_a_change_of_a_user_run_again_is_kept_once(tmp_path: Path, twice: Twice) -> None:
    """I6: in the audit too, and nothing that was changed meanwhile is undone."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        now = world.clock.now()

        async def change() -> None:
            ledger = core_of(world.engine).ledger
            await ledger.set_tier("default", "ada", "high", now, "root")
            await ledger.set_quota("default", "ada", 3, None, now, "root")
            await ledger.set_tier("default", "ada", "low", now + 1, "root")

        await twice(world, change)
        assert [each.after for each in await world.engine.audit()] == ["low", "[3,null]", "high"]
        assert await core_of(world.engine).ledger.tier_of("default", "ada") == "low"


@in_every_way
async def test_credits_given_again_are_given_once(tmp_path: Path, twice: Twice) -> None:
    """I6: the same operation again changes nothing and answers the balance."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        balances = await twice(world, lambda: world.engine.add_credits("ada", 5, "gift"))
        assert balances == (5, 5)
        await world.healthy()


# --- what the tests say ---------------------------------------------------------------------------
def assembly_line(path: Path) -> World:
    """Two services in a row, and one alone."""
    steps = [Service(name, fairness=Fairness.NONE) for name in ("cut", "glue")]
    return World(catalog(work(), *steps, pipelines={"line": ("cut", "glue")}), path / "ledger.db")


async def one_job_in_every_live_state(world: World) -> list[str]:
    retrying, running, waiting = [await world.submit(input=n) for n in range(3)]
    await world.engine.fail(await world.claim_one())
    assert (await world.claim_one()).job == running
    second_step = await world.submit("line")
    await world.engine.complete(await world.claim_one(Worker("w", frozenset({"cut"}))), "output")
    delayed = await world.submit(run_at=world.clock.now() + seconds(3600))
    fan_out = await world.submit(matrix={"model": ("a", "b"), "question": ("x", "y")})
    jobs = [retrying, running, waiting, second_step, delayed, fan_out]
    assert all([(await world.job(job)).live for job in jobs])
    return jobs


async def claim_until_none(world: World, worker: Worker) -> list[Lease]:
    leases: list[Lease] = []
    while found := await world.claim(1000, worker):
        leases += found
    return leases


async def holding(world: World, leases: Sequence[Lease]) -> frozenset[str]:
    """The tokens of those that still hold."""
    return await world.engine.leases.holding([(lease.job, lease.token) for lease in leases])


async def output(world: World, job: str) -> object:
    """What the job's last step gave."""
    _, context = await core_of(world.engine).ledger.payload(job)
    found = [value["data"] for name, value in context.items() if not name.endswith("__attempts")]
    return found[-1] if found else None


async def kinds(world: World, job: str) -> list[EventType]:
    return [event.type for event in await core_of(world.engine).ledger.events(job, 0)]


def answer_of(written: WrittenOrNot[Settled | Stale | Unwritten]) -> tuple[State, int]:
    outcome = only(written)
    assert isinstance(outcome, Settled), outcome
    return outcome.state, outcome.rev


async def lost_and_taken_over(world: World) -> tuple[Lease, Lease]:
    """The first worker stops being heard of, the second gets its job."""
    await world.submit()
    stale = await world.claim_one(FIRST)
    await world.pass_time(16)
    await world.pass_time(3)
    fresh = await world.claim_one(SECOND)
    assert (fresh.job, fresh.fence) == (stale.job, stale.fence + 1)
    assert fresh.token != stale.token
    return stale, fresh


async def refused_whatever_it_says(world: World, stale: Lease, state: str) -> None:
    engine = world.engine
    verbs: list[Callable[[], Awaitable[object]]] = [
        lambda: engine.complete(stale, "first"),
        lambda: engine.fail(stale, Fault.TRANSIENT),
        lambda: engine.fail(stale, Fault.INVALID_INPUT),
        lambda: engine.give_back(stale),
        lambda: engine.progress(stale, 10, "first"),
    ]
    for verb in verbs:
        with pytest.raises(StaleLease) as caught:
            await verb()
        assert caught.value.state == state
    assert (await engine.renew([stale], world.clock.now() + seconds(15))).lost == [stale.job]
    assert (await engine.heartbeat(FIRST, [stale])).lost == [stale.job]
    assert await engine.settle([Done(stale, "first")]) == [Stale(State(state))]


def late_report(lease: Lease, dice: random.Random) -> Report:
    reports: list[Report] = [
        Done(lease, "first"),
        Failed(lease, Fault.TRANSIENT),
        GivenBack(lease),
    ]
    return dice.choice(reports)


def any_report(lease: Lease, dice: random.Random) -> Report:
    """As often as not it is done."""
    reports: list[Report] = [Done(lease), Failed(lease, Fault.TRANSIENT), GivenBack(lease)]
    return dice.choices(reports, (2, 1, 1))[0]


async def forge_members(world: World, jobs: list[str], dice: random.Random) -> None:
    core = core_of(world.engine)
    for job in (await core.ledger.jobs(jobs)).values():
        truth = core.entry(job)
        forged = truth._replace(
            rev=max(1, truth.rev + dice.randrange(-1, 4)),
            rank=dice.choice([truth.rank, truth.rank, 0]),
            user=dice.choice([truth.user, truth.user, "default:u:mallory"]),
            ready_at=dice.choice([truth.ready_at, 0]),
            score=dice.choice([truth.score, 0]),
        )
        await core.index.put([forged, forged], core.now())


async def forge_ready(world: World, job: str) -> None:
    core = core_of(world.engine)
    truth = core.entry(await world.job(job))
    await core.index.correct_entry(truth, truth._replace(ready_at=0, score=0), core.now())


async def one_lease_after_the_other(world: World, job: str) -> list[Outcome]:
    """Fences grow by one, and none begins before the last one has ended."""
    attempts = await world.engine.attempts(job)
    assert [attempt.fence for attempt in attempts] == list(range(1, len(attempts) + 1))
    for earlier, following in itertools.pairwise(attempts):
        assert following.started_at >= earlier.ended_at
    return [attempt.outcome for attempt in attempts]
