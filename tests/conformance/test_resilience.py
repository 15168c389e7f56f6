"""What goes wrong around the queue must not go wrong in it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from fairlane.clock import SystemClock
from fairlane.compose import embedded
from fairlane.engine import claim as claiming
from fairlane.engine import unconfirmed
from fairlane.engine.settle import Done, Failed
from fairlane.errors import InvalidInput, SetupError
from fairlane.index.index import Index
from fairlane.ledger.ledger import Ledger
from fairlane.ledger.messages import Confirmation, Settlement
from fairlane.ledger.sqlite import SqliteLedger
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease, Slot
from fairlane.model.service import Fairness, Overrun, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded, Worker
from fairlane.units import SECOND
from tests.core import core_of
from tests.ledger_items import completion, confirmation, request, submission
from tests.world import World, catalog


class Moody(sqlite3.Connection):
    """A disk that is full while somebody says so."""

    full = False

    def execute(self, statement: str, *args: object) -> sqlite3.Cursor:
        if Moody.full and statement == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(statement, *args)  # type: ignore[arg-type]


@pytest.mark.embedded
async def test_sweeps_go_on_after_a_full_disk(tmp_path: Path) -> None:
    """I34: nothing is lost, and when there is room again expired leases are reaped."""
    async with World(catalog(), tmp_path / "ledger.db", connection=Moody) as world:
        job = await world.submit()
        await world.claim()
        Moody.full = True
        try:
            await world.pass_time(16)
            with pytest.raises(sqlite3.OperationalError):
                await world.submit()
        finally:
            Moody.full = False
        await world.pass_time(16)
        await world.pass_time(3)
        assert (await world.claim_one()).job == job
        await world.healthy()


class Slow(sqlite3.Connection):
    """A disk that writes when somebody lets it, and how many rows each commit had."""

    free, reached = threading.Event(), threading.Event()
    rows: ClassVar[list[int]] = []
    _before = 0

    def execute(self, statement: str, *args: object) -> sqlite3.Cursor:
        if statement == "COMMIT":
            Slow.rows.append(self.total_changes - self._before)
            self._before = self.total_changes
            Slow.reached.set()
            Slow.free.wait()
        return super().execute(statement, *args)  # type: ignore[arg-type]


@pytest.mark.embedded
async def test_a_flood_of_submits_lets_heartbeats_results_and_cancels_go_first(
    tmp_path: Path,
) -> None:
    """§6: they are in the next commit, and only a few submits with them."""
    Slow.free.set()
    order: list[str] = []
    async with World(catalog(), tmp_path / "ledger.db", connection=Slow) as world:
        for _ in range(3):
            await world.submit()
        kept, done, gone = await world.claim(3)
        Slow.free.clear()
        Slow.reached.clear()
        asked = []

        def ask(name: str, work: Coroutine[Any, Any, object]) -> None:
            asked.append(asyncio.create_task(work))
            asked[-1].add_done_callback(lambda _: order.append(name))

        ledger, now = core_of(world.engine).ledger, world.clock.now()
        ask("submit", ledger.submit([submission(world)]))
        await asyncio.to_thread(Slow.reached.wait)
        Slow.rows.clear()
        for _ in range(500):
            ask("submit", ledger.submit([submission(world)]))
        ask("cancel", ledger.cancel(request(world, gone.job), frozenset()))
        ask("result", ledger.settle([completion(done, now)]))
        ask("heartbeat", ledger.renew([(kept.job, kept.token)], now + SECOND, now))
        await asyncio.sleep(0)  # all have asked
        Slow.free.set()
        await asyncio.gather(*asked)
    assert order[:4] == ["submit", "cancel", "result", "heartbeat"]
    assert Slow.rows[0] < 100 < Slow.rows[1]


@pytest.mark.embedded
async def test_a_failed_start_leaves_the_file_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with World(catalog(), path) as world:
        await world.submit()
    with pytest.raises(SetupError):
        await World(catalog(Service("other")), path).start()
    ledger = await SqliteLedger.open(path)
    await ledger.close()


@pytest.mark.parametrize(
    "huge", [{"timeout": 2**63 - 1}, {"max_wait": 2**63 - 1}, {"run_at": 2**63 - 1}]
)
async def test_times_that_cannot_be_stored_are_refused_at_the_door(
    tmp_path: Path, huge: dict[str, int]
) -> None:
    """I1: they must not come to spoil other people's batches."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        with pytest.raises(InvalidInput):
            await world.engine.submit(NewJob("work")._replace(**huge))  # type: ignore[arg-type]


async def test_a_workers_message_cannot_break_its_neighbours_results(tmp_path: Path) -> None:
    """I1: half a surrogate, a NUL, a megabyte."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(2)])
        good, bad = await world.claim(2)
        message = "\ud800\x00" + "x" * 1_000_000
        await world.engine.settle([Done(good), Failed(bad, Fault.INVALID_INPUT, message)])
        states = [(await world.job(job)).state for job in jobs]
        assert states == [State.COMPLETED, State.FAILED]


async def test_two_live_changes_at_once_both_hold(tmp_path: Path) -> None:
    """I11: neither is undone by the other."""
    settings = catalog(Service("a", limit=5), Service("b", limit=5))
    async with World(settings, tmp_path / "ledger.db") as world:
        engine = world.engine
        changes = [engine.change("services", name, "limit", 1) for name in ("a", "b")]
        await asyncio.gather(*changes)
        for name in ("a", "b"):
            await world.submit_all([NewJob(name) for _ in range(3)])
        running = await world.claim(10)
        assert sorted(lease.service for lease in running) == ["a", "b"]


async def test_a_limit_that_comes_counts_what_already_runs(tmp_path: Path) -> None:
    """I7: also after a restart in which there was none."""
    path = tmp_path / "ledger.db"
    async with World(catalog(Service("work", limit=2)), path) as world:
        world.settings = catalog(Service("work"))
        await world.restart()
        await world.submit_all([NewJob("work") for _ in range(8)])
        running = await world.claim(5)
        world.settings = catalog(Service("work", limit=2))
        await world.restart()
        assert await world.claim(5) == []
        for lease in running[:3]:
            await world.engine.complete(lease)
        assert await world.claim(5) == []
        await world.engine.complete(running[3])
        assert len(await world.claim(5)) == 1


async def test_nothing_is_left_in_the_outbox_by_calls_that_publish_nothing(tmp_path: Path) -> None:
    """I24: a renewal that shares a commit with a submit does not keep its row."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        engine = world.engine
        for _ in range(20):
            await asyncio.gather(world.submit(), engine.heartbeat(Worker("w")), world.claim())
        await engine.heartbeat(Worker("w"))
        assert await core_of(engine).ledger.outbox(100) == []


async def test_a_cancelled_long_poll_swallows_no_wake_up(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        worker = Worker("w")
        polls = [asyncio.create_task(world.engine.claim(worker, 1, wait=60)) for _ in range(10)]
        await until_idle(world, 10)
        for poll in polls[:-1]:
            poll.cancel()
        await asyncio.gather(*polls[:-1], return_exceptions=True)
        await world.submit()
        assert len(await polls[-1]) == 1


class Deserted:
    """A ledger whose callers go away while it confirms what they have claimed."""

    def __init__(self, ledger: Ledger, moment: str) -> None:
        self._ledger, self._moment = ledger, moment

    def __getattr__(self, verb: str) -> object:
        return getattr(self._ledger, verb)

    async def confirm(self, items: Sequence[Confirmation]) -> object:
        caller = asyncio.current_task()
        assert caller is not None
        if self._moment == "before":
            caller.cancel()
        written = await self._ledger.confirm(items)
        caller.cancel()
        await asyncio.sleep(0)
        return written


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_what_is_confirmed_for_a_caller_that_has_gone_is_given_back(
    tmp_path: Path, moment: str
) -> None:
    """I18: at once, not when the lease ends, and no attempt is used up."""
    async with World(catalog(Service("work", limit=1)), tmp_path / "ledger.db") as world:
        core, ledger = core_of(world.engine), core_of(world.engine).ledger
        job = await world.submit()
        for _ in range(3):
            core.ledger = cast("Ledger", Deserted(ledger, moment))
            claim = asyncio.create_task(world.claim(1, Worker("gone")))
            await asyncio.wait([claim])
            core.ledger = ledger
            assert claim.cancelled()
            await asyncio.gather(*core.leftovers)
            lease = await world.claim_one()
            assert (lease.job, lease.attempt) == (job, 1)
            await world.engine.give_back(lease)
        await world.healthy()


class Deaf:
    """A ledger that is away as soon as it has confirmed, and until somebody has asked it again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._away = ledger, True

    def __getattr__(self, verb: str) -> object:
        return getattr(self._ledger, verb)

    async def confirm(self, items: Sequence[Confirmation]) -> object:
        await self._ledger.confirm(items)
        raise ConnectionError("the answer was lost")

    async def revoke(self, held: Sequence[tuple[str, int, str]]) -> object:
        if self._away:
            self._away = False
            raise ConnectionError("still away")
        return await self._ledger.revoke(held)


async def test_what_is_confirmed_by_a_ledger_that_is_away_then_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6, I18: as soon as it is back, not when the lease ends; nobody pays for it with an
    attempt."""
    monkeypatch.setattr(unconfirmed, "RETRY_PAUSE_SECONDS", 0)
    settings = catalog(Service("work", limit=1, max_attempts=1))
    async with World(settings, tmp_path / "ledger.db") as world:
        core, ledger = core_of(world.engine), core_of(world.engine).ledger
        job = await world.submit()
        core.ledger = cast("Ledger", Deaf(ledger))
        with pytest.raises(ConnectionError):
            await world.claim()
        await asyncio.gather(*core.leftovers)
        core.ledger = ledger
        lease = await world.claim_one()
        assert (lease.job, lease.attempt) == (job, 1)
        await world.engine.complete(lease)
        await world.healthy()


async def test_what_is_confirmed_is_handed_out_though_the_index_is_not_told_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        first, second = [await world.submit() for _ in range(2)]
        await core_of(world.engine).ledger.cancel(request(world, first), frozenset())

        async def away(*_: object) -> None:
            raise ConnectionError("away")

        monkeypatch.setattr(claiming, "correct_index", away)
        (lease,) = await world.claim(2)
        assert lease.job == second


class Renewing:
    """A ledger in which a lease is renewed just before somebody takes it back."""

    def __init__(self, ledger: Ledger, lease: Lease) -> None:
        self._ledger, self._lease = ledger, lease

    def __getattr__(self, verb: str) -> object:
        return getattr(self._ledger, verb)

    async def settle(self, items: Sequence[Settlement]) -> object:
        lease = self._lease
        until, before = lease.lease_until + 60 * SECOND, lease.lease_until - 1
        renewal = await self._ledger.renew([(lease.job, lease.token)], until, before)
        assert not renewal.lost
        return await self._ledger.settle(items)


async def test_a_lease_that_is_renewed_while_it_is_being_taken_back_stays(tmp_path: Path) -> None:
    """I3, I4: who was told that it holds may rely on it; its slot stays taken, too."""
    settings = catalog(Service("work", limit=1, overrun=Overrun.STRICT))
    async with World(settings, tmp_path / "ledger.db") as world:
        core, ledger = core_of(world.engine), core_of(world.engine).ledger
        await world.submit()
        lease = await world.claim_one()
        await world.submit()
        core.ledger = cast("Ledger", Renewing(ledger, lease))
        await world.pass_time(16)
        core.ledger = ledger
        assert (await world.job(lease.job)).state is State.RUNNING
        assert await world.claim() == []
        await world.engine.complete(lease)
        assert await world.claim_one()
        await world.healthy()


async def test_a_job_is_forgiven_once_for_what_was_seen_once(tmp_path: Path) -> None:
    """I6, I18: whoever hears no answer says it again."""
    async with World(catalog(Service("work", max_attempts=5)), tmp_path / "ledger.db") as world:
        job = await world.submit()
        for _ in range(2):
            await world.engine.fail(await world.claim_one(), Fault.TRANSIENT)
            await world.pass_time(60)
        for _ in range(2):
            await core_of(world.engine).ledger.return_attempts([(job, 1, 2), (job, 0, 2)])
        assert (await world.job(job)).attempt == 1


async def test_an_index_that_hangs_keeps_nobody_from_hearing_the_ledger(tmp_path: Path) -> None:
    """I32: who hears the ledger may go on to judge leases."""
    async with await embedded(catalog(), tmp_path / "ledger.db", clock=SystemClock()) as engine:
        core, ledger = core_of(engine), core_of(engine).ledger
        hanging, heard = asyncio.Event(), asyncio.Event()

        class Hanging:
            def __getattr__(self, verb: str) -> object:
                return getattr(index, verb)

            async def serves(self, life: str) -> None:
                del life
                hanging.set()
                await asyncio.Event().wait()

        class Hearing:
            def __getattr__(self, verb: str) -> object:
                return getattr(ledger, verb)

            async def expired(self, *asked: int) -> object:
                if hanging.is_set():
                    heard.set()
                return await ledger.expired(*asked)

        index = core.index
        core.index, core.ledger = cast("Index", Hanging()), cast("Ledger", Hearing())
        await asyncio.wait_for(hanging.wait(), 30)
        await asyncio.wait_for(heard.wait(), 30)
        core.index, core.ledger = index, ledger


async def test_a_draining_worker_gets_nothing_more(tmp_path: Path) -> None:
    """Not even in a call in which it is already waiting."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        worker = await world.engine.register(Worker("w"))
        poll = asyncio.create_task(world.engine.claim(worker, 1, wait=60))
        await until_idle(world, 1)
        draining = await world.engine.drain(worker)
        await world.submit()
        assert await poll == []
        assert await world.engine.claim(draining) == []
        await world.engine.register(worker)
        assert len(await world.engine.claim(worker)) == 1


async def test_a_rebuild_that_was_cut_off_is_tried_again(tmp_path: Path) -> None:
    """I26: wherever it was cut off; a claim meanwhile does not hang."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        for steps in range(12):
            job = await world.submit()
            rebuild = asyncio.create_task(world.engine.rebuild())
            for _ in range(steps):
                await core_of(world.engine).ledger.turn()
            rebuild.cancel()
            await asyncio.gather(rebuild, return_exceptions=True)
            found = await world.claim()
            await world.pass_time(1)
            found += await world.claim()
            assert [lease.job for lease in found] == [job]


async def test_two_rebuilds_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(20)])
        await asyncio.gather(*(world.engine.rebuild() for _ in range(3)))
        assert sorted(lease.job for lease in await world.claim(50)) == sorted(jobs)


async def test_a_users_jobs_of_two_tiers_do_not_block_the_line(tmp_path: Path) -> None:
    """I27: caps that differ by tier, in one band, are each their own."""
    tiers = Tiers(
        [Tier("pro", max_running_per_user=5), Tier("free", max_running_per_user=1)], "free"
    )
    service = Service("work", fairness=Fairness.NONE)
    async with World(catalog(service, tiers=tiers), tmp_path / "ledger.db") as world:
        await world.engine.add_credits("ada", 100, "gift")
        for tier in ("pro", "free", "pro"):
            await world.engine.skip(await world.submit(user="ada", tier=tier, duration=1))
        others = [await world.submit(user=f"user{n}", tier="free") for n in range(3)]
        found: list[Lease] = []
        for _ in range(8):
            found += await world.claim()
        assert {lease.job for lease in found} >= set(others)


@pytest.mark.embedded
async def test_a_clock_set_back_undoes_nothing(tmp_path: Path) -> None:
    """I31: after a restart with the wall clock an hour earlier, waiting jobs are still ready."""
    path = tmp_path / "ledger.db"
    async with World(catalog(), path) as world:
        world.clock.advance(10**9 * SECOND)
        await world.submit()
        ahead = world.clock.now()
    async with await embedded(catalog(), path, sweeping=False) as engine:
        assert SystemClock().now() < ahead
        assert len(await engine.claim(Worker("w"))) == 1


async def test_writes_after_the_end_are_refused_and_do_not_hang(tmp_path: Path) -> None:
    world = World(catalog(), tmp_path / "ledger.db")
    await world.start()
    submits = [asyncio.create_task(world.submit()) for _ in range(5)]
    await asyncio.sleep(0)
    await world.engine.stop()
    await asyncio.wait_for(asyncio.gather(*submits, return_exceptions=True), 10)
    with pytest.raises(SetupError):
        await world.submit()
    with pytest.raises(SetupError):
        await world.engine.get("018bcfe5-6800-7008-a65b-000000000000")


async def test_a_claim_run_again_late_uses_no_second_place_of_a_rate(tmp_path: Path) -> None:
    """I6: the minute of the first one is over, the answer is still the same lease."""
    async with World(catalog(Service("work", rate=2)), tmp_path / "ledger.db") as world:
        ledger = core_of(world.engine).ledger
        job = await world.submit()
        claim = confirmation(world, await world.job(job), [Slot("rate:svc:work", 1)])
        (first,) = (await ledger.confirm([claim])).outcomes
        world.clock.advance(61 * SECOND)
        (again,) = (await ledger.confirm([claim._replace(now=world.clock.now())])).outcomes
        assert isinstance(first, Lease)
        assert again == first
        assert len(await ledger.slots("rate:svc:work")) <= 1
        assert [row.token for row in await ledger.slots()] == [claim.token]


async def test_an_idle_worker_does_not_spin_after_a_rates_minute(tmp_path: Path) -> None:
    async with World(catalog(Service("work", rate=1)), tmp_path / "ledger.db") as world:
        await world.submit()
        await world.engine.complete(await world.claim_one())
        world.clock.advance(61 * SECOND)
        core = core_of(world.engine)
        picks = await core.index.claim(Worker("w"), Loaded(), 1, core.now(), core.epoch)
        assert picks.proposals == []
        assert picks.look_again_at > core.now()


async def test_an_idle_worker_does_not_oversleep_a_job_that_comes_later(tmp_path: Path) -> None:
    """I4: a retry, or a delayed job, that is put in line while workers sleep starts at its time and
    not when one of them would have looked again."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        waiting = asyncio.create_task(world.engine.claim(Worker("w"), 1, wait=60))
        await until_idle(world, 1)
        job = await world.submit(run_at=world.clock.now() + 2 * SECOND)
        await until_idle(world, 1)
        world.clock.advance(2 * SECOND)
        (lease,) = await asyncio.wait_for(waiting, 10)
        assert (lease.job, lease.started_at) == (job, world.clock.now())


async def until_idle(world: World, waiting: int) -> None:
    """Let the polls come to rest."""
    for _ in range(1000):
        if (await world.engine.overview()).stats.idle >= waiting:
            return
    raise AssertionError("the polls never came to rest")
