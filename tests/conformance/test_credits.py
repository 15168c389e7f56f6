"""Credits: charged once, refunded once, never below zero, always in balance (I14)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fairlane.clock import seconds
from fairlane.engine.settle import Done, GivenBack, Report
from fairlane.errors import (
    Conflict,
    FairlaneError,
    InsufficientCredits,
    InvalidInput,
    WrongState,
)
from fairlane.ledger.messages import Filter, Skipped
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Limits
from fairlane.model.credits import CreditSettings
from fairlane.model.event import EventType
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, Service, Shares
from fairlane.model.state import State
from fairlane.model.worker import Loaded, Worker
from tests.conformance.acts import history
from tests.core import core_of
from tests.ledger_items import confirmation
from tests.world import World, catalog

ADA, BOB = "ada", "bob"
PRICES = {10: 1, 30: 3, 60: 5, 120: 10, 121: 15}
"""Seconds of work → credits."""


class Paid(World):
    """A queue whose user ada has credits. An hour of patience, two attempts, skips without a
    share, results of 64 bytes at most."""

    def __init__(self, path: Path, deposit: int = 100) -> None:
        unshared = Shares(1000, 1000, 1000)
        services = [
            Service(name, fairness=Fairness.NONE, max_wait=3600, max_attempts=2, shares=unshared)
            for name in ("work", "cut", "glue")
        ]
        settings = catalog(
            *services,
            pipelines={"line": ("cut", "glue")},
            limits=Limits(result_bytes=64, keep_finished=3600),
        )
        super().__init__(settings, path / "ledger.db")
        self.deposit = deposit

    async def __aenter__(self) -> Paid:
        await super().__aenter__()
        await self.engine.add_credits(ADA, self.deposit, "first deposit")
        return self

    async def costs(self, spent: int) -> None:
        """So much has been spent by now, and the books are right."""
        assert self.deposit - await self.engine.balance(ADA) == spent
        await self.statement_is_right()
        await self.healthy()

    async def statement_is_right(self) -> None:
        """Every booking leads from one balance to the next, in the order of their times."""
        found = await self.engine.statement(ADA, limit=10_000)
        after = 0
        for entry in reversed(found.entries):
            after += entry.amount
            assert entry.balance == after
        assert after == found.balance == await self.engine.balance(ADA)
        times = [entry.at for entry in found.entries]
        assert times == sorted({*times}, reverse=True)

    async def skipped(self, name: str = "work", duration: float = 60) -> str:
        """A job of ada's, at the very front, for 5 credits."""
        job = await self.submit(name, user=ADA, duration=duration)
        await self.engine.skip(job)
        return job


# --- charging -------------------------------------------------------------------------------------
async def test_five_hundred_skips_at_once_spend_a_balance_to_the_last_credit(
    tmp_path: Path,
) -> None:
    """I14: 100 credits buy 100 of 500 skips at one credit; the others are refused and unmoved."""
    async with Paid(tmp_path) as world:
        jobs = await world.submit_all([NewJob("work", user=ADA, duration=5)] * 500)
        answers = await skip_all(world, jobs)
        assert Counter(map(type, answers)) == {Skipped: 100, InsufficientCredits: 400}
        assert {a.price for a in answers if isinstance(a, Skipped)} == {1}
        balances = [a.balance for a in answers if isinstance(a, Skipped)]
        assert sorted(balances) == list(range(100))
        await world.costs(100)
        paid = {j for j, a in zip(jobs, answers, strict=True) if isinstance(a, Skipped)}
        assert {lease.job for lease in await world.claim(100)} == paid


async def test_five_hundred_skips_of_one_job_are_charged_once(tmp_path: Path) -> None:
    """I14: by one impatient user, or by a thousand retries."""
    async with Paid(tmp_path) as world:
        job = await world.submit(user=ADA, duration=60)
        answers = await skip_all(world, [job] * 500)
        assert sum(a.price for a in answers if isinstance(a, Skipped)) == 5
        assert sum(isinstance(a, Skipped) and not a.again for a in answers) == 1
        await world.costs(5)
        assert await told(world, job, EventType.JOB_SKIPPED) == 1


async def test_skips_of_every_price_never_take_a_balance_below_zero(tmp_path: Path) -> None:
    """I14: what was paid is what the accepted skips cost, whatever order they came in."""
    dice = random.Random(14)
    async with Paid(tmp_path) as world:
        durations = [dice.choice(list(PRICES)) for _ in range(200)]
        jobs = await world.submit_all([NewJob("work", user=ADA, duration=d) for d in durations])
        answers = await skip_all(world, jobs)
        spent = 0
        for duration, answer in zip(durations, answers, strict=True):
            if isinstance(answer, Skipped):
                assert answer.price == PRICES[duration]
                spent += answer.price
        assert 90 <= spent <= 100
        await world.costs(spent)


async def test_a_skip_and_a_start_race_and_only_a_moved_job_is_charged(tmp_path: Path) -> None:
    """I14: whoever is first; a job that started first is not moved, not charged, and says so."""
    async with Paid(tmp_path) as world:
        jobs = await world.submit_all([NewJob("work", user=ADA, duration=5)] * 60)
        claims = asyncio.gather(*(world.claim(2, Worker(f"w{n}")) for n in range(30)))
        answers, _ = await asyncio.gather(skip_all(world, jobs), claims)
        for job, answer in zip(jobs, answers, strict=True):
            moved = await told(world, job, EventType.JOB_SKIPPED)
            assert moved == (1 if isinstance(answer, Skipped) else 0)
            assert isinstance(answer, Skipped | WrongState)
            began = [event.type for event in await history(world, job)][1]
            assert (began is EventType.JOB_SKIPPED) == isinstance(answer, Skipped)
        await world.costs(sum(isinstance(answer, Skipped) for answer in answers))


async def test_a_job_that_was_paid_for_is_the_next_to_start(tmp_path: Path) -> None:
    """I14: what is charged is moved, before jobs of better tiers and before a claim under way."""
    async with Paid(tmp_path) as world:
        core = core_of(world.engine)
        first = await world.submit(tier="high")
        paid = await world.submit(tier="low", user=ADA, duration=60)
        picks = await core.index.claim(Worker("slow"), Loaded(), 2, core.now(), core.epoch)
        jobs = [await world.job(job) for job in (first, paid)]
        await world.engine.skip(paid)
        written = await core.ledger.confirm([confirmation(world, job) for job in jobs])
        assert [isinstance(outcome, Lease) for outcome in written.outcomes] == [True, False]
        await core.index.drop([proposal.token for proposal in picks.proposals], core.now())
        await world.submit(tier="high")
        assert (await world.claim_one()).job == paid
        await world.costs(5)


async def test_a_skip_that_cannot_be_is_not_charged(tmp_path: Path) -> None:
    """I14: too dear, running, over, unknown owner, a fan-out: the job stays, so do the credits."""
    async with Paid(tmp_path, deposit=4) as world:
        dear = await world.submit(user=ADA, duration=60)
        before = await world.job(dear)
        with pytest.raises(InsufficientCredits):
            await world.engine.skip(dear)
        with pytest.raises(InvalidInput):
            await world.engine.skip(dear, max_price=3)
        assert await world.job(dear) == before
        running = (await world.claim_one()).job
        await world.engine.add_credits(ADA, 0, "nothing")
        with pytest.raises(Conflict):
            await world.engine.skip(running)
        await world.engine.cancel(running)
        with pytest.raises(Conflict):
            await world.engine.skip(running)
        with pytest.raises(InvalidInput):
            await world.engine.skip(await world.submit(duration=1))
        with pytest.raises(InvalidInput):
            await world.engine.skip(await world.submit(user=ADA, matrix={"n": ("1", "2")}))
        await world.costs(0)


async def test_a_skip_lasts_through_retries_and_steps_without_a_second_charge(
    tmp_path: Path,
) -> None:
    """I14: failed, lost, at the second step: the job is paid for."""
    async with Paid(tmp_path) as world:
        job = await world.skipped("line")
        await world.engine.fail(await world.claim_one())
        await world.pass_time(3)
        again = await world.engine.skip(job)
        assert (again.price, again.again) == (0, True)
        await world.engine.complete(await world.claim_one())
        await world.submit_all([NewJob("glue", user=BOB)] * 3)
        assert (await world.engine.skip(job)).again
        assert (await world.claim_one()).job == job
        await world.costs(5)


# --- refunding ------------------------------------------------------------------------------------
Ending = Callable[[Paid, str], Awaitable[object]]


async def cancelled_in_line(world: Paid, job: str) -> None:
    await world.engine.cancel(job)


async def cancelled_while_running(world: Paid, job: str) -> None:
    lease = await claim_it(world, job)
    await world.engine.cancel(job)
    with pytest.raises(Conflict):
        await world.engine.complete(lease)


async def refused_its_input(world: Paid, job: str) -> None:
    await world.engine.fail(await claim_it(world, job), Fault.INVALID_INPUT)


async def gave_too_much(world: Paid, job: str) -> None:
    await world.engine.complete(await claim_it(world, job), "x" * 100)


async def used_up_its_attempts(world: Paid, job: str) -> None:
    await world.engine.fail(await claim_it(world, job))
    await world.pass_time(3)
    await world.engine.fail(await claim_it(world, job))


async def was_lost_too_often(world: Paid, job: str) -> None:
    for _ in range(2):
        await claim_it(world, job)
        await world.pass_time(16)
        await world.pass_time(3)


async def waited_too_long(world: Paid, job: str) -> None:
    await world.pass_time(3601)


ENDINGS = [
    cancelled_in_line,
    cancelled_while_running,
    refused_its_input,
    gave_too_much,
    used_up_its_attempts,
    was_lost_too_often,
    waited_too_long,
]
in_every_way = pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)


@in_every_way
async def test_a_skip_that_brought_nothing_is_refunded_once(tmp_path: Path, end: Ending) -> None:
    """I14: however the job ended without a completed step, and however often it is ended again."""
    async with Paid(tmp_path) as world:
        job = await world.skipped()
        await world.costs(5)
        await end(world, job)
        assert (await world.job(job)).state not in (State.COMPLETED, State.QUEUED, State.RUNNING)
        await world.costs(0)
        for _ in range(3):
            with suppress(Conflict):
                await world.engine.cancel(job)
        await world.restart()
        await world.pass_time(16)
        await world.costs(0)


@in_every_way
async def test_a_refunded_job_that_comes_back_can_be_paid_for_again(
    tmp_path: Path, end: Ending
) -> None:
    """I14: replayed it stands in its tier; skipped again it costs again, and is refunded again."""
    async with Paid(tmp_path) as world:
        job = await world.skipped()
        await end(world, job)
        if (await world.job(job)).state is State.CANCELLED:
            with pytest.raises(WrongState):
                await world.engine.replay(job)
            return
        await world.engine.replay(job)
        await world.costs(0)
        await world.engine.skip(job)
        await world.costs(5)
        await end(world, job)
        await world.costs(0)


async def test_a_skip_that_brought_a_result_is_not_refunded(tmp_path: Path) -> None:
    """I14: completed, or cancelled or failed after its first step: paid is paid."""
    async with Paid(tmp_path) as world:
        done, cancelled, failed = [await world.skipped(name) for name in ("work", "line", "line")]
        for lease in await world.claim(3):
            await world.engine.complete(lease)
        await world.engine.cancel(cancelled)
        await world.engine.fail(await claim_it(world, failed), Fault.INVALID_INPUT)
        states = [(await world.job(job)).state for job in (done, cancelled, failed)]
        assert states == [State.COMPLETED, State.CANCELLED, State.FAILED]
        await world.costs(15)


async def test_a_skip_bought_after_the_first_step_is_not_refunded(tmp_path: Path) -> None:
    """I14: the job has brought something before it was paid for; the rule looks at the job."""
    async with Paid(tmp_path) as world:
        job = await world.submit("line", user=ADA, duration=60)
        await world.engine.complete(await world.claim_one())
        await world.engine.skip(job)
        await world.engine.cancel(job)
        await world.costs(5)


async def test_twenty_cancels_at_once_refund_once(tmp_path: Path) -> None:
    """I14: also while a worker reports a failure and a sweep takes the lease back."""
    async with Paid(tmp_path) as world:
        jobs = [await world.skipped() for _ in range(10)]
        leases = await world.claim(10)
        world.clock.advance(seconds(16))
        await asyncio.gather(
            *(world.engine.cancel(job) for job in jobs for _ in range(20)),
            *(world.engine.fail(lease, Fault.INVALID_INPUT) for lease in leases),
            world.engine.sweep(),
            return_exceptions=True,
        )
        for job in jobs:
            with suppress(Conflict):
                await world.engine.cancel(job)
        await world.costs(0)


async def test_a_cancelled_fan_out_refunds_every_cell_that_was_paid_for(tmp_path: Path) -> None:
    """I14: cells are paid for one by one; those that are done stay paid."""
    async with Paid(tmp_path) as world:
        parent = await world.submit(user=ADA, duration=60, matrix={"n": ("1", "2", "3")})
        cells = (await world.engine.list_jobs(Filter(parent=parent))).jobs
        for cell in cells:
            await world.engine.skip(cell.id)
        await world.costs(15)
        await world.engine.complete(await world.claim_one())
        await world.claim_one()
        await world.engine.cancel(parent)
        await world.costs(5)


async def test_a_skip_run_again_after_refund_and_replay_is_not_a_second_skip(
    tmp_path: Path,
) -> None:
    """I14: one request, under one name, is charged once, however late it arrives again."""
    async with Paid(tmp_path) as world:
        job = await world.submit(user=ADA, duration=60)
        await world.engine.skip(job, op="the user's click")
        await refused_its_input(world, job)
        await world.engine.replay(job)
        with suppress(FairlaneError):
            await world.engine.skip(job, op="the user's click")
        await world.costs(0)


async def test_a_repeated_skip_names_the_price_that_was_paid(tmp_path: Path) -> None:
    """I14: although the settings have other prices by now, which hold for the next job."""
    async with Paid(tmp_path) as world:
        job = await world.submit(user=ADA, duration=60)
        assert (await world.engine.skip(job, op="the user's click")).price == 5
        prices = CreditSettings("gold", ((30, 2),), longer_skip_price=9)
        world.settings = catalog(*world.settings.services.values(), credits=prices)
        await world.restart()
        assert world.engine.catalog.credits == prices
        again = await world.engine.skip(job, op="the user's click")
        assert (again.price, again.again) == (5, True)
        await world.costs(5)
        dearer = await world.submit(user=ADA, duration=60)
        assert (await world.engine.quote(dearer)).price == 9
        await world.engine.skip(dearer)
        await world.engine.cancel(job)
        await world.costs(9)


# --- accounts -------------------------------------------------------------------------------------
async def test_a_deposit_is_booked_once_under_its_name(tmp_path: Path) -> None:
    """I14: a hundred times at once, and after a restart."""
    async with Paid(tmp_path) as world:
        gifts = (world.engine.add_credits(BOB, 7, "gift") for _ in range(100))
        assert set(await asyncio.gather(*gifts)) == {7}
        await world.restart()
        assert await world.engine.add_credits(BOB, 7, "gift") == 7
        await world.healthy()


async def test_the_name_of_an_operation_belongs_to_one_account(tmp_path: Path) -> None:
    """I14: unique is (account, operation): the same name for another user, or for a namesake of
    another tenant, is another operation."""
    async with Paid(tmp_path) as world:
        engine = world.engine
        assert await engine.add_credits(ADA, 10, "monthly") == 110
        assert await engine.add_credits(BOB, 10, "monthly") == 10
        assert await engine.add_credits(BOB, 10, "monthly", tenant="other") == 10
        assert await engine.balance(BOB) == 10
        await world.healthy()


async def test_a_balance_cannot_be_taken_below_zero(tmp_path: Path) -> None:
    """I14: withdrawals at once stop at the last credit."""
    async with Paid(tmp_path) as world:
        takes = (world.engine.add_credits(ADA, -30, f"take {n}") for n in range(10))
        answers = await asyncio.gather(*takes, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, InsufficientCredits)]
        assert len(refused) == 7
        assert await world.engine.balance(ADA) == 10
        await world.healthy()


async def test_the_books_outlive_the_jobs_they_are_about(tmp_path: Path) -> None:
    """I14: records are removed after an hour, entries never: every balance stays what it was."""
    async with Paid(tmp_path) as world:
        kept, refunded = [await world.skipped() for _ in range(2)]
        await world.engine.cancel(refunded)
        await world.engine.complete(await claim_it(world, kept))
        world.clock.advance(seconds(7200))
        for _ in range(300):
            await world.engine.sweep()
        assert (await world.engine.list_jobs()).jobs == []
        await world.costs(5)
        entries = (await world.engine.statement(ADA)).entries
        assert [(entry.kind, entry.job) for entry in entries] == [
            ("refund", refunded),
            ("payment", refunded),
            ("payment", kept),
            ("grant", None),
        ]


@pytest.mark.parametrize("seed", range(3))
async def test_after_anything_the_balance_is_what_a_pencil_says(tmp_path: Path, seed: int) -> None:
    """I14: deposits, skips, results, failures, cancels, replays and restarts in any order; after
    every step the books balance and the credits are those of the jobs still paid for."""
    dice = random.Random(seed)
    async with Paid(tmp_path) as world:
        jobs = [
            await world.submit(dice.choice(["work", "line"]), user=ADA, duration=60)
            for _ in range(12)
        ]
        paid: set[str] = set()
        for _ in range(60):
            await anything(world, dice.choice(jobs), paid, dice)
            for job in list(paid):
                if not (await world.job(job)).live and not await any_output(world, job):
                    paid.discard(job)
            await world.costs(5 * len(paid))


# --- what the tests say ---------------------------------------------------------------------------
async def skip_all(world: World, jobs: list[str]) -> list[Skipped | FairlaneError]:
    async def one(job: str) -> Skipped | FairlaneError:
        try:
            return await world.engine.skip(job)
        except FairlaneError as error:
            return error

    return await asyncio.gather(*map(one, jobs))


async def told(world: World, job: str, kind: EventType) -> int:
    """How often the job's owner was told this."""
    return sum(event.type is kind for event in await core_of(world.engine).ledger.events(job, 0))


async def any_output(world: World, job: str) -> bool:
    """Whether any step of it has been completed."""
    _, context = await core_of(world.engine).ledger.payload(job)
    return bool(context)


async def claim_it(world: World, job: str) -> Lease:
    lease = await world.claim_one()
    assert lease.job == job
    return lease


async def anything(world: Paid, job: str, paid: set[str], dice: random.Random) -> None:
    engine = world.engine
    roll = dice.randrange(10)
    if roll < 3:
        with suppress(FairlaneError):
            await engine.skip(job)
            paid.add(job)
    elif roll < 5:
        for lease in await world.claim(2):
            with suppress(FairlaneError):
                endings: list[Report] = [Done(lease), GivenBack(lease)]
                await engine.settle([dice.choice(endings)])
    elif roll < 6:
        for lease in await world.claim(1):
            await engine.fail(lease, dice.choice([Fault.TRANSIENT, Fault.INVALID_INPUT]))
    elif roll < 8:
        with suppress(FairlaneError):
            await dice.choice([engine.cancel, engine.replay])(job)
    elif roll < 9:
        await world.pass_time(dice.choice([3, 20, 1000]))
    else:
        await world.restart()
