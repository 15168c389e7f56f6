"""Lists that miss nothing, and what is kept for how long."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fairlane.engine.maintenance import RETENTION_BATCH, retire
from fairlane.engine.submit import Caller
from fairlane.errors import Expired, NotFound
from fairlane.ledger.messages import Filter, Replayed, Request, SubmissionAccepted
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Limits
from fairlane.model.job import NewJob
from fairlane.model.service import Fairness, Service
from fairlane.model.state import State
from fairlane.units import SECOND
from tests.conformance.acts import cells_of, run_all
from tests.core import core_of
from tests.world import World, catalog

HOUR = 3600
DAY = 24 * HOUR
ONE_TRY = Service("work", fairness=Fairness.NONE, max_attempts=1)


async def nothing() -> None:
    """Nobody else is there."""


async def listed(
    world: World,
    wanted: Filter,
    size: int,
    meanwhile: Callable[[], Awaitable[object]] = nothing,
) -> list[str]:
    """All pages of a listing, and what happens while each of them is read."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        reading = world.engine.list_jobs(wanted, cursor, size)
        page, _ = await asyncio.gather(reading, meanwhile())
        assert len(page.jobs) <= size
        found += [job.id for job in page.jobs]
        if page.next is None:
            return found
        assert page.next != cursor, "the listing stands still"
        cursor = page.next


async def retire_all(world: World) -> int:
    total = 0
    while gone := await retire(core_of(world.engine)):
        assert gone <= RETENTION_BATCH
        total += gone
    return total


# --- I29 -----------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 7, 50, 51])
async def test_pages_join_without_a_gap_or_an_overlap(tmp_path: Path, size: int) -> None:
    """I29: every job exactly once, newest first, whatever the page size."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(50)])
        assert await listed(world, Filter(), size) == jobs[::-1]


async def test_a_listing_goes_on_behind_a_job_that_is_gone(tmp_path: Path) -> None:
    """I29: the job that ends a page is removed before the next one is read: that one begins with
    the next older job."""
    async with World(catalog(limits=Limits(keep_finished=HOUR)), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(10)])
        page = await world.engine.list_jobs(Filter(), None, 4)
        assert page.next == jobs[6]
        await world.engine.cancel(page.next)
        await world.pass_time(HOUR)
        await world.submit()
        assert await retire_all(world) == 1
        rest = await world.engine.list_jobs(Filter(), page.next, 10)
        assert [job.id for job in rest.jobs] == jobs[5::-1]


@pytest.mark.parametrize("seed", range(3))
async def test_rows_that_live_through_a_listing_are_returned_once(
    tmp_path: Path, seed: int
) -> None:
    """I29: eight writers insert and remove while pages are read: none skipped, none repeated."""
    dice = random.Random(seed)
    limits = Limits(keep_finished=HOUR)
    async with World(catalog(limits=limits), tmp_path / "ledger.db") as world:
        stay = await world.submit_all([NewJob("work", tags=("stay",)) for _ in range(60)])
        go = await world.submit_all([NewJob("work", tags=("go",)) for _ in range(60)])
        mixed = await world.submit_all(
            [NewJob("work", tags=(dice.choice(["stay", "go"]),)) for _ in range(60)]
        )
        for job in mixed:
            (stay if "stay" in (await world.job(job)).tags else go).append(job)
        dice.shuffle(go)
        removed: list[int] = []

        async def write() -> None:
            await world.submit(tags=("new",))
            if go and dice.random() < 0.3:
                await world.engine.cancel(go.pop())
                world.clock.advance(HOUR * SECOND)
                removed.append(await retire(core_of(world.engine)))

        async def eight_write() -> None:
            await asyncio.gather(*(write() for _ in range(8)))

        found = await listed(world, Filter(), 5, eight_write)
        assert len(found) == len(set(found)), "a job was returned twice"
        assert set(stay) <= set(found), "a job was skipped"
        assert found == sorted(found, reverse=True)
        assert sum(removed) > 20, "nothing was removed meanwhile"


async def test_lists_can_be_narrowed_by_user_state_tag_name_and_tenant(tmp_path: Path) -> None:
    """I29: each filter, and all of them together, page by page."""
    dice = random.Random(4)
    services = [Service(name, fairness=Fairness.NONE) for name in ("draw", "talk")]
    async with World(catalog(*services), tmp_path / "ledger.db") as world:
        facts: dict[str, tuple[str, str, str, frozenset[str]]] = {}
        for _ in range(80):
            tags = frozenset(dice.sample(["red", "blue", "re"], dice.randrange(3)))
            name, user, tenant = (
                dice.choice(["draw", "talk"]),
                dice.choice(["ann", "bob"]),
                dice.choice(["t1", "t2"]),
            )
            job = await world.submit(name, Caller(tenant, "key"), user=user, tags=tuple(tags))
            facts[job] = (name, user, tenant, tags)
        for lease in await world.claim(40):
            if dice.random() < 0.7:
                await world.engine.complete(lease)
        state = {job: (await world.job(job)).state for job in facts}

        def expected(wanted: Filter) -> list[str]:
            return [
                job
                for job, (name, user, tenant, tags) in reversed(facts.items())
                if wanted.name in (None, name)
                and wanted.user in (None, user)
                and wanted.tenant in (None, tenant)
                and (wanted.tag is None or wanted.tag in tags)
                and (not wanted.states or state[job] in wanted.states)
            ]

        for wanted in (
            Filter(user="ann"),
            Filter(states=(State.QUEUED,)),
            Filter(states=(State.RUNNING, State.COMPLETED)),
            Filter(states=(State.DEAD,)),
            Filter(tag="re"),
            Filter(name="talk"),
            Filter(tenant="t2"),
            Filter(user="nobody"),
            Filter("t1", "bob", (State.QUEUED, State.COMPLETED), "draw", "red"),
        ):
            assert await listed(world, wanted, 7) == expected(wanted), wanted


async def test_the_cells_of_a_fan_out_are_listed_under_it_and_nowhere_else(tmp_path: Path) -> None:
    """I29: one row for the fan-out; its executions by parent, page by page."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": tuple("abcdefg")})
        single = await world.submit()
        assert await listed(world, Filter(), 1) == [single, parent]
        cells = await listed(world, Filter(parent=parent), 2)
        assert cells == [cell.id for cell in await cells_of(world, parent)][::-1]
        assert len(cells) == 7


# --- I30 -----------------------------------------------------------------------------------
async def test_nothing_that_lives_is_ever_removed(tmp_path: Path) -> None:
    """I30: queued, delayed, retrying, running jobs and live fan-outs stay for years, and run."""
    service = Service("work", fairness=Fairness.NONE, max_attempts=4)
    async with World(catalog(service), tmp_path / "ledger.db") as world:
        jobs = [await world.submit() for _ in range(3)]
        running, failing = await world.claim(2)
        await world.engine.fail(failing)
        jobs.append(await world.submit(run_at=world.clock.now() + 900 * DAY * SECOND))
        parent = await world.submit(tier="low", matrix={"q": ("1", "2")})
        first, *_ = [lease for lease in await world.claim(3) if lease.parent == parent]
        await world.engine.complete(first)
        world.clock.advance(400 * DAY * SECOND)
        await retire_all(world)
        for job in [*jobs, parent]:
            assert (await world.job(job)).live
        assert (await world.job(first.job)).state is State.COMPLETED, "its fan-out still needs it"
        assert (await world.job(running.job)).state is State.RUNNING
        await world.healthy()


@pytest.mark.parametrize(
    ("how", "days"), [("completed", 7), ("failed", 7), ("cancelled", 7), ("dead", 30)]
)
async def test_what_is_over_is_kept_as_long_as_promised(
    tmp_path: Path, how: str, days: int
) -> None:
    """I30: finished jobs 7 days, dead ones 30, with attempts and events; then all of it is gone."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        job = await world.submit()
        lease = await world.claim_one()
        match how:
            case "completed":
                await world.engine.complete(lease, {"x": 1})
            case "failed":
                await world.engine.fail(lease, Fault.INVALID_INPUT)
            case "cancelled":
                await world.engine.cancel(job)
            case _:
                await world.engine.fail(lease)
        await world.pass_time(60, sweeps=5)
        world.clock.advance((days * DAY - 61) * SECOND)
        await retire_all(world)
        assert (await world.job(job)).state == how
        assert len(await world.engine.attempts(job)) == 1
        world.clock.advance(61 * SECOND)
        assert await retire_all(world) == 1
        with pytest.raises(NotFound):
            await world.job(job)
        assert await core_of(world.engine).ledger.events(job, 0) == []
        assert await core_of(world.engine).ledger.attempts(job) == []


async def test_a_job_the_outbox_names_is_kept(tmp_path: Path) -> None:
    """I30: an end that the index has not heard of is not forgotten before it has."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        named, other = await world.submit(), await world.submit()
        await core.ledger.cancel(Request(named, None, "op", core.now()), frozenset())
        await world.engine.cancel(other)
        await world.engine.set_tier("ann", "low")  # one more write, to clear what is published
        assert [jobs for _, jobs in await core.ledger.outbox(10)] == [[named]]
        world.clock.advance(60 * DAY * SECOND)
        assert await retire_all(world) == 1
        assert (await world.job(named)).state is State.CANCELLED
        await world.pass_time(1, sweeps=5)
        assert await retire_all(world) == 1
        with pytest.raises(NotFound):
            await world.job(named)


async def test_a_key_outlives_its_job_for_a_day(tmp_path: Path) -> None:
    """I30: the job is gone after an hour; until 24 h its key says how it ended, then it is free."""
    settings = catalog(ONE_TRY, limits=Limits(keep_finished=HOUR, keep_dead=HOUR))
    ends = {"completed": Fault.TIMEOUT, "failed": Fault.INVALID_INPUT, "dead": Fault.TRANSIENT}
    async with World(settings, tmp_path / "ledger.db") as world:
        jobs = {}
        for end, fault in ends.items():
            jobs[end] = await world.submit(idempotency_key=end)
            lease = await world.claim_one()
            if end == "completed":
                await world.engine.complete(lease)
            else:
                await world.engine.fail(lease, fault)
        plain = await world.submit()
        await run_all(world)
        world.clock.advance(HOUR * SECOND)
        await retire_all(world)
        for waited in (0, 22 * HOUR, HOUR - 1):
            world.clock.advance(waited * SECOND)
            await retire_all(world)
            for end, job in jobs.items():
                with pytest.raises(Expired) as expired:
                    await world.job(job)
                assert expired.value.status == end
                again = await world.engine.submit(NewJob("work", idempotency_key=end))
                assert again == Replayed(job, end)
        with pytest.raises(NotFound):
            await world.job(plain)
        world.clock.advance(2 * SECOND)
        await retire_all(world)
        for end, job in jobs.items():
            with pytest.raises(NotFound):
                await world.job(job)
            assert isinstance(
                await world.engine.submit(NewJob("work", idempotency_key=end)), SubmissionAccepted
            )


async def test_a_key_whose_job_is_kept_is_answered_with_the_job(tmp_path: Path) -> None:
    """I30: for 24 h by the clock, to the second, while the job itself stays longer."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(idempotency_key="k")
        await run_all(world)
        world.clock.advance((DAY - 1) * SECOND)
        await retire_all(world)
        again = await world.engine.submit(NewJob("work", idempotency_key="k"))
        assert again == Replayed(job, None)
        world.clock.advance(SECOND)
        await retire_all(world)
        fresh = await world.engine.submit(NewJob("work", idempotency_key="k"))
        assert isinstance(fresh, SubmissionAccepted)
        assert fresh.job != job
        assert (await world.job(job)).state is State.COMPLETED


async def test_much_is_removed_in_bounded_parts(tmp_path: Path) -> None:
    """I30: at most 1,000 rows a transaction; the sweep comes back until all are gone."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        await world.submit_all([NewJob("work") for _ in range(1300)])
        live = await world.submit()
        leases = await world.claim(1300)
        await asyncio.gather(*(world.engine.complete(lease) for lease in leases))
        world.clock.advance(8 * DAY * SECOND)
        assert RETENTION_BATCH * 5 <= 1000
        assert await retire(core) == RETENTION_BATCH
        assert await world.engine.count(State.COMPLETED) == 1300 - RETENTION_BATCH
        for _ in range(300):
            await world.engine.sweep()
        assert await world.engine.count(State.COMPLETED) == 0
        assert (await world.job(live)).state is State.QUEUED


async def test_the_caller_sets_how_much_is_removed_at_once(tmp_path: Path) -> None:
    """I30: oldest first, no more than asked for, of keys as well."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = []
        for number in range(10):
            jobs.append(await world.submit(idempotency_key=str(number)))
            await run_all(world)
            world.clock.advance(SECOND)
        now = world.clock.now()
        assert await core_of(world.engine).ledger.retire(now, now, 0, 4) == 4
        left = await listed(world, Filter(), 50)
        assert left == jobs[4:][::-1]
        for job in jobs[:4]:
            with pytest.raises(Expired):
                await world.job(job)


async def test_a_dead_cell_can_be_replayed_as_long_as_it_is_kept(tmp_path: Path) -> None:
    """I30: dead letters are kept 30 days, so what their replay needs is kept with them."""
    async with World(catalog(ONE_TRY), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2")})
        bad, good = await world.claim(2)
        await world.engine.complete(good)
        await world.engine.fail(bad)
        await world.pass_time(20 * DAY, sweeps=300)
        await world.engine.replay(bad.job)
        assert await run_all(world) == [bad.job]
        assert (await world.job(bad.job)).state is State.COMPLETED
        assert (await world.job(parent)).state is State.COMPLETED
        await world.healthy()


async def test_a_mixed_batch_is_listed_newest_first(tmp_path: Path) -> None:
    """I29: with and without tags, in one call."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all(
            [NewJob("work", tags=("t",) if n % 2 == 0 else ()) for n in range(6)]
        )
        page = await world.engine.list_jobs(Filter(), None, 6)
        assert [job.id for job in page.jobs] == jobs[::-1]


async def test_an_eta_is_told_only_if_somebody_may_know_it(tmp_path: Path) -> None:
    """Nobody knows when a paused service goes on; one that is away is not called before its next
    try."""
    async with World(catalog(Service("work", limit=4)), tmp_path / "ledger.db") as world:
        engine = world.engine
        for _ in range(3):
            await world.submit()
        for lease in await world.claim(3):
            await engine.fail(lease, Fault.UNAVAILABLE, retry_after=30)
        job = await world.submit()
        eta = (await engine.view(job)).eta
        assert eta is not None
        assert 30 * SECOND <= eta.p50 <= eta.p90
        await engine.change("services", "work", "paused", True)
        assert (await engine.view(job)).eta is None
