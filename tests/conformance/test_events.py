"""What owners are told, and what a crash left to be told to the index."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from fairlane.clock import ManualClock
from fairlane.engine.core import publish
from fairlane.engine.outbox_relay import publish_left_behind
from fairlane.engine.reconciler import reconcile
from fairlane.errors import FairlaneError
from fairlane.index.index import Index
from fairlane.ledger.messages import Filter, Request
from fairlane.model.attempt import Fault
from fairlane.model.event import Event, EventType
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, RetryPlace, Service
from fairlane.model.state import Move, State
from fairlane.units import SECOND
from tests.conformance.acts import ENDINGS, cells_of, claim_until_found, history, run_all, types
from tests.core import core_of
from tests.world import World, catalog

T = EventType
PLAIN = Service("work", fairness=Fairness.NONE, max_attempts=3)


# --- I24 -----------------------------------------------------------------------------------
async def leave_behind(world: World, jobs: list[str]) -> list[str]:
    """Half of these jobs are cancelled in the ledger, and the process dies before the index hears
    of it: the ones that are over."""
    core = core_of(world.engine)
    gone = jobs[::2]
    for job in gone:
        request = Request(job, None, f"op-{job}", core.now())
        await core.ledger.cancel(request, frozenset())
    return gone


async def test_what_a_crash_left_in_the_outbox_is_published_by_a_sweep(tmp_path: Path) -> None:
    """I24: committed without being published: a sweep tells the index, and the row is gone."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        job = await world.submit()
        await world.engine.fail(await world.claim_one())
        await world.pass_time(10)
        lease = await world.claim_one()
        await world.engine.fail(lease, Fault.INVALID_INPUT)
        assert await core.index.standing(job, core.now()) is None
        written = await core.ledger.reopen(Request(job, None, "op", core.now()), Move.REPLAY, None)
        assert not isinstance(written.outcomes[0], Exception)
        assert any(job in jobs for _, jobs in await core.ledger.outbox(1000))
        assert await world.claim() == []
        await world.pass_time(1, sweeps=5)
        assert await run_all(world) == [job]
        await world.pass_time(1, sweeps=5)
        assert await core.ledger.outbox(1000) == []


async def test_ghosts_that_a_crash_left_are_taken_out_of_line(tmp_path: Path) -> None:
    """I24: jobs that are over in the ledger leave the line with the next sweeps."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = await world.submit_all([NewJob("work") for _ in range(10)])
        gone = await leave_behind(world, jobs)
        await world.pass_time(1, sweeps=5)
        for job in jobs:
            standing = await core.index.standing(job, core.now())
            assert (standing is None) == (job in gone)
        assert sorted(await run_all(world)) == sorted(set(jobs) - set(gone))


class CutOff:
    """An index that cannot be told anything."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __getattr__(self, verb: str) -> object:
        return getattr(self._index, verb)

    async def put(self, *_: object) -> None:
        raise ConnectionError("the index is away")

    take = put


@contextmanager
def cut_off(world: World) -> Iterator[None]:
    core = core_of(world.engine)
    core.index, there = cast("Index", CutOff(core.index)), core.index
    try:
        yield
    finally:
        core.index = there


@pytest.mark.parametrize("verb", ["submit", "fail", "cancel", "replay", "skip"])
async def test_an_index_that_fails_while_it_is_told_is_told_later(
    tmp_path: Path, verb: str
) -> None:
    """I24: a row is cleared when the index has taken what it names, and not before."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        engine, core = world.engine, core_of(world.engine)
        await engine.add_credits("ann", 100, "deposit")
        failed, _, waiting = [await world.submit(user="ann") for _ in range(3)]
        await engine.fail(await world.claim_one(), Fault.INVALID_INPUT)
        lease = await world.claim_one()
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "submit": world.submit,
            "fail": lambda: engine.fail(lease),
            "cancel": lambda: engine.cancel(waiting),
            "replay": lambda: engine.replay(failed),
            "skip": lambda: engine.skip(waiting),
        }
        with cut_off(world), pytest.raises(ConnectionError):
            await acts[verb]()
        await world.submit()
        await world.pass_time(1, sweeps=5)
        assert await reconcile(core) == 0
        assert await core.ledger.outbox(1000) == []


async def test_an_index_that_fails_while_a_sweep_clears_up_is_told_later(tmp_path: Path) -> None:
    """I24: what a crash left is cleared when the index has taken it, and not before."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = await world.submit_all([NewJob("work") for _ in range(10)])
        gone = await leave_behind(world, jobs)
        with cut_off(world), pytest.raises(ConnectionError):
            await publish_left_behind(core)
        await world.pass_time(1, sweeps=5)
        for job in jobs:
            assert (await core.index.standing(job, core.now()) is None) == (job in gone)


async def test_what_a_crash_left_is_there_after_a_restart(tmp_path: Path) -> None:
    """I24: the same through a new process, and no outbox row stays behind."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(10)])
        gone = await leave_behind(world, jobs)
        await world.restart()
        assert await core_of(world.engine).ledger.outbox(1000) == []
        assert await run_all(world) == [job for job in jobs if job not in gone]


@pytest.mark.parametrize("seed", range(3))
async def test_publishing_again_in_any_order_changes_nothing(tmp_path: Path, seed: int) -> None:
    """I24: rows hold only ids, so ten replays of each, shuffled, concurrent, bring nothing old
    back: the claims that follow are the same as without them."""

    async def order(name: str, *, replaying: bool) -> list[int]:
        dice = random.Random(seed)
        noise = random.Random(seed)
        async with World(catalog(PLAIN), tmp_path / name) as world:
            core = core_of(world.engine)
            jobs: list[str] = []
            granted: list[str] = []
            for _ in range(25):
                new = [NewJob("work", tier=dice.choice(["high", "low"])) for _ in range(2)]
                jobs += await world.submit_all(new)
                for lease in await world.claim(dice.randrange(1, 3)):
                    granted.append(lease.job)
                    if dice.random() < 0.3:
                        await world.engine.give_back(lease)
                    elif dice.random() < 0.9:
                        await world.engine.complete(lease)
                if dice.random() < 0.2:
                    waiting = [job for job in jobs if (await world.job(job)).state is State.QUEUED]
                    if waiting:
                        await world.engine.cancel(dice.choice(waiting))
                world.clock.advance(dice.randrange(3) * SECOND)
                if replaying:
                    row = noise.sample(jobs, min(4, len(jobs)))
                    rows = [noise.sample(row, len(row)) for _ in range(10)]
                    await asyncio.gather(*(publish(core, row) for row in rows))
                    await publish_left_behind(core)
            granted += await run_all(world)
            await world.healthy()
            return [jobs.index(job) for job in granted]

    assert await order("plain", replaying=False) == await order("replayed", replaying=True)


async def test_publishing_while_jobs_are_claimed_grants_none_twice(tmp_path: Path) -> None:
    """I24: publishers beside claimers: every job runs once."""
    dice = random.Random(9)
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = await world.submit_all([NewJob("work") for _ in range(60)])
        granted: list[str] = []

        async def run() -> None:
            for lease in await world.claim(3):
                granted.append(lease.job)
                await world.engine.complete(lease)

        while len(granted) < len(jobs):
            before = len(granted)
            acts = [run() for _ in range(3)]
            acts += [publish(core, dice.sample(jobs, 10)) for _ in range(10)]
            dice.shuffle(acts)
            await asyncio.gather(*acts)
            assert len(granted) > before
        assert sorted(granted) == sorted(jobs)
        assert await world.claim(10) == []


# --- I25 -----------------------------------------------------------------------------------
def gapless(events: list[Event], after: int = 0) -> None:
    assert [event.seq for event in events] == list(range(after + 1, after + 1 + len(events)))
    assert [event.at for event in events] == sorted(event.at for event in events)


async def test_a_whole_life_is_told_without_a_gap(tmp_path: Path) -> None:
    """I25: promotion, skip, retry, give-back, steps, give-up, resume, cancel: numbered from 1."""
    settings = catalog(
        Service("one", fairness=Fairness.NONE, max_attempts=3),
        Service("two", fairness=Fairness.NONE, max_attempts=3, max_wait=100),
        pipelines={"both": ("one", "two")},
    )
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.engine.add_credits("ann", 10, "gift")
        job = await world.submit("both", user="ann", tier="low")
        seen: list[Event] = []

        async def look() -> None:
            """Each look sees what the last one saw and more."""
            found = await history(world, job)
            gapless(found)
            assert found[: len(seen)] == seen
            assert found[len(seen) :] == await history(world, job, after=len(seen))
            assert (await world.job(job)).seq == len(found)
            seen[:] = found

        await look()
        await world.pass_time(600, sweeps=5)
        await look()
        await world.engine.skip(job)
        await look()
        lease = await world.claim_one()
        await look()
        await world.engine.fail(lease)
        await look()
        await world.pass_time(2)
        await world.engine.give_back(await world.claim_one())
        await look()
        await world.restart()
        await look()
        await world.engine.complete(await world.claim_one())
        await look()
        await world.pass_time(100)
        await look()
        await world.engine.resume(job)
        await look()
        lease = await world.claim_one()
        await world.engine.cancel(job)
        await look()
        assert [event.type for event in seen] == [
            T.WAITING,
            T.JOB_PROMOTED,
            T.JOB_SKIPPED,
            T.STEP_START,
            T.JOB_RETRY,
            T.STEP_START,
            T.WAITING,
            T.STEP_START,
            T.STEP_COMPLETE,
            T.WAITING,
            T.JOB_FAILED,
            T.JOB_REOPENED,
            T.STEP_START,
            T.JOB_CANCELLED,
        ]
        await world.healthy()


async def test_a_fan_out_and_its_cells_tell_their_lives_without_a_gap(tmp_path: Path) -> None:
    """I25: the parent too: waiting, failed, reopened, complete."""
    service = Service("work", fairness=Fairness.NONE, max_attempts=1)
    async with World(catalog(service), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2", "3")})
        assert await types(world, parent) == [T.WAITING]
        bad, *good = await world.claim(3)
        for lease in good:
            await world.engine.complete(lease)
        await world.engine.fail(bad)
        await world.engine.replay(bad.job)
        await world.engine.complete(await world.claim_one())
        found = await history(world, parent)
        gapless(found)
        assert [event.type for event in found] == [
            T.WAITING,
            T.JOB_FAILED,
            T.JOB_REOPENED,
            T.JOB_COMPLETE,
        ]
        for cell in await cells_of(world, parent):
            events = await history(world, cell.id)
            gapless(events)
            assert events[-1].type is T.JOB_COMPLETE
        await world.healthy()


async def test_who_comes_back_gets_what_was_missed(tmp_path: Path) -> None:
    """I25: reconnect with after = n yields n + 1 …, from every n."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        job = await world.submit()
        for _ in range(2):
            await world.engine.fail(await claim_until_found(world))
        await world.engine.complete(await claim_until_found(world))
        whole = [event async for event in world.engine.events(job)]
        gapless(whole)
        assert len(whole) == 8
        for after in range(len(whole) + 1):
            rest = [event async for event in world.engine.events(job, after=after)]
            assert rest == whole[after:]


class Audience:
    """Listeners to many jobs, whose lines are cut now and then."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world, self.dice = world, dice
        self.heard: dict[str, list[list[Event]]] = {}
        self.listeners: list[asyncio.Task[None]] = []

    def subscribe(self, job: str) -> None:
        into: list[Event] = []
        self.heard.setdefault(job, []).append(into)
        self.listeners.append(asyncio.create_task(self._listen(job, into)))

    async def _listen(self, job: str, into: list[Event]) -> None:
        """Come back after a cut with the last number seen."""
        while not into or into[-1].type not in ENDINGS:
            stream = self.world.engine.events(job, after=into[-1].seq if into else 0)
            async for event in stream:
                into.append(event)
                if self.dice.random() < 0.3:
                    break
            await stream.aclose()  # type: ignore[attr-defined]


async def live_on(world: World, lease: Lease, dice: random.Random) -> None:
    """One of the things that can happen to a running job."""
    match dice.randrange(6):
        case 0 | 1:
            await world.engine.complete(lease)
        case 2:
            await world.engine.give_back(lease)
        case 3:
            await world.engine.fail(lease, Fault.QUALITY)
        case 4:
            await world.engine.cancel(lease.job)
        case _:
            await world.engine.fail(lease)


@pytest.mark.parametrize("seed", range(3))
async def test_live_subscribers_see_what_late_ones_see(tmp_path: Path, seed: int) -> None:
    """I25: listeners from the start, from the middle and with cuts, beside random lives of many
    jobs: the same list for everybody."""
    dice = random.Random(seed)
    service = Service(
        "work", fairness=Fairness.NONE, max_attempts=3, retry_place=RetryPlace.FRONT, max_wait=300
    )
    async with World(catalog(service), tmp_path / "ledger.db") as world:
        audience = Audience(world, dice)
        jobs = await world.submit_all([NewJob("work", tier="low") for _ in range(12)])
        for job in jobs:
            audience.subscribe(job)
        while alive := [job for job in jobs if (await world.job(job)).live]:
            if dice.random() < 0.3:
                audience.subscribe(dice.choice(alive))
            for lease in await world.claim(2):
                await live_on(world, lease, dice)
            await world.pass_time(dice.randrange(1, 20), sweeps=5)
        async with asyncio.timeout(30):
            await asyncio.gather(*audience.listeners)
        for job in jobs:
            late = [event async for event in world.engine.events(job)]
            gapless(late)
            assert all(each == late for each in audience.heard[job]), job
        await world.healthy()


async def test_a_fan_outs_listener_hears_its_end_from_whatever_ends_it(tmp_path: Path) -> None:
    """I25: the last cell is completed, cancelled, given up or reaped: the listener is told."""
    service = Service("work", fairness=Fairness.NONE, max_attempts=1)
    for how in ("complete", "cancel cell", "cancel parent", "reap", "give up"):
        async with World(catalog(service), tmp_path / f"{how}.db") as world:
            wait = 30 * SECOND if how == "give up" else 0
            parent = await world.submit(matrix={"q": ("1", "2")}, max_wait=wait)
            listener = asyncio.create_task(world.engine.wait(parent))
            first, second = await world.claim(2)
            await world.engine.complete(first)
            await asyncio.sleep(0)
            match how:
                case "complete":
                    await world.engine.complete(second)
                case "cancel cell":
                    await world.engine.cancel(second.job)
                case "cancel parent":
                    await world.engine.cancel(parent)
                case "reap":
                    await world.pass_time(15)
                case _:
                    await world.engine.give_back(second)
                    await world.pass_time(30)
            async with asyncio.timeout(30):
                ended = await listener
            assert not ended.live, how


async def test_a_cell_that_fails_again_is_heard_by_a_listener_of_the_reopened_parent(
    tmp_path: Path,
) -> None:
    """I25: whoever connects after the reopening follows the second life from its first event."""
    service = Service("work", fairness=Fairness.NONE, max_attempts=1)
    async with World(catalog(service), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1",)})
        lease = await world.claim_one()
        await world.engine.fail(lease)
        known = [event async for event in world.engine.events(parent)]
        await world.engine.replay(lease.job)
        more: list[Event] = []

        async def listen() -> None:
            more.extend([event async for event in world.engine.events(parent, after=len(known))])

        listener = asyncio.create_task(listen())
        await world.engine.fail(await world.claim_one())
        async with asyncio.timeout(30):
            await listener
        gapless(known + more)
        assert [event.type for event in more] == [T.JOB_REOPENED, T.JOB_FAILED]


# --- times ---------------------------------------------------------------------------------------
class Wobbling(ManualClock):
    """For each move up to 0.75 s early or late, as moves are that wait for one another."""

    def __init__(self) -> None:
        super().__init__()
        self._dice, self._off = random.Random(5), 0

    def wobble(self) -> None:
        self._off = self._dice.randrange(-750_000, 750_000)

    def now(self) -> int:
        return super().now() + self._off


@pytest.mark.parametrize("matrix", [None, {"n": ("1", "2")}], ids=["plain", "fan_out"])
async def test_a_later_event_is_never_earlier_in_time(
    tmp_path: Path, matrix: dict[str, tuple[str, ...]] | None
) -> None:
    """I25: whatever is done to a job, and in whichever order its moves had read the time. What its
    row and its attempts say goes with it."""
    service = Service("work", fairness=Fairness.NONE, max_attempts=2, backoff=(0,))
    world = World(catalog(service), tmp_path / "ledger.db")
    clock = world.clock = Wobbling()
    dice = random.Random(6)
    async with world:
        for n in range(12):
            await world.engine.add_credits("ada", 1_000, f"grant-{n}")
            await world.submit(user="ada", matrix=matrix, tier="low", max_wait=3_000_000)
        jobs = (await world.engine.list_jobs(limit=100)).jobs
        every = [job.id for job in jobs]
        for parent in jobs if matrix else []:
            cells = await world.engine.list_jobs(Filter(parent=parent.id), limit=100)
            every += [cell.id for cell in cells.jobs]
        for _ in range(250):
            await something(world, clock, dice, every)
        for job_id in every:
            await times_agree(world, job_id)
        await world.healthy()


async def something(world: World, clock: Wobbling, dice: random.Random, every: list[str]) -> None:
    """One of all things that can be done to a job, or that its time brings."""
    clock.wobble()
    engine, job, now = world.engine, dice.choice(every), clock.now()
    acts: list[Callable[[], Awaitable[object]]] = [
        lambda: engine.cancel(job),
        lambda: engine.resume(job),
        lambda: engine.replay(job),
        lambda: engine.skip(job),
        lambda: core_of(engine).ledger.promote([(job, "high")], ("high", "medium", "low"), now),
        lambda: core_of(engine).ledger.promote([(job, "medium")], ("high", "medium", "low"), now),
        lambda: world.pass_time(dice.choice([0, 0, 0.3, 5])),
    ]
    with suppress(FairlaneError):
        await dice.choice(acts[1:] if dice.random() < 0.8 else acts)()
    clock.wobble()
    for lease in await world.claim(2):
        clock.wobble()
        ends: list[Callable[[Lease], Awaitable[object]]] = [
            engine.complete,
            engine.fail,
            engine.give_back,
            lambda lease: engine.fail(lease, Fault.INVALID_INPUT),
            lambda lease: engine.cancel(lease.job),
        ]
        await dice.choice(ends)(lease)


async def times_agree(world: World, job_id: str) -> None:
    events = await core_of(world.engine).ledger.events(job_id, 0)
    times = [event.at for event in events]
    assert times == sorted(times), [(event.type, event.at) for event in events]
    job = await world.job(job_id)
    if job.finished_at is not None:
        assert job.finished_at == times[-1]
    for attempt in await world.engine.attempts(job_id):
        assert attempt.started_at <= (attempt.ended_at or 0)


@pytest.mark.parametrize("told", ["promoted", "skipped"])
async def test_a_job_does_not_start_before_what_was_told_of_it(tmp_path: Path, told: str) -> None:
    """I25: its worker had read the time before."""
    async with World(catalog(PLAIN), tmp_path / "ledger.db") as world:
        job = await world.submit(user="ada", tier="low")
        await world.engine.add_credits("ada", 1_000, "grant")
        later = world.clock.now() + 750_000
        ledger = core_of(world.engine).ledger
        if told == "promoted":
            await ledger.promote([(job, "high")], ("high", "medium", "low"), later)
        else:
            written = await ledger.skip(Request(job, None, "op", later), 1)
            await publish(core_of(world.engine), [job])
            ledger.published(written.receipts)
        lease = await world.claim_one()
        assert lease.started_at == later
        assert lease.deadline - lease.started_at == lease.at.timeout
        await world.engine.complete(lease)
        await times_agree(world, job)
