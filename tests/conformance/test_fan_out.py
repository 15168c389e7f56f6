"""Fan-out: progress, stop after a failure, and retries that reopen an ended parent."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from fairlane.engine.settle import Done, Failed
from fairlane.errors import InvalidInput, Refused, StaleLease, WrongState
from fairlane.ledger.messages import Filter, Settled
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Limits
from fairlane.model.event import EventType
from fairlane.model.fanout import OnCellFailure
from fairlane.model.job import Job, NewJob
from fairlane.model.service import Service
from fairlane.model.state import Code, State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from tests.core import core_of
from tests.ledger_items import failure
from tests.world import World, catalog

ONCE = catalog(Service("work", max_attempts=1))
STOP = OnCellFailure.STOP
FOUR = {"q": ("1", "2", "3", "4")}


async def cells_of(world: World, parent: str) -> list[Job]:
    return (await world.engine.list_jobs(Filter(parent=parent), None, 200)).jobs


async def states(world: World, parent: str) -> Counter[State]:
    return Counter(cell.state for cell in await cells_of(world, parent))


async def told(world: World, job: str) -> list[EventType]:
    return [event.type for event in await world.engine.stored_events(job)]


async def ended(world: World, parent: str) -> Job:
    async with asyncio.timeout(20):
        return await world.engine.wait(parent)


# --- retries -------------------------------------------------------------------------------------
async def test_all_failed_cells_are_retried_while_the_fan_out_runs(tmp_path: Path) -> None:
    """I20: those that run or are completed are left alone."""
    async with World(ONCE, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix=FOUR)
        done, *bad = await world.claim(3)
        await world.engine.complete(done)
        for lease in bad:
            await world.engine.fail(lease)
        again = await world.engine.retry_failed(parent)
        assert sorted(again) == sorted(lease.job for lease in bad)
        assert (await world.job(parent)).cells_left == 3
        for lease in await world.claim(9):
            assert lease.attempt == 1
            await world.engine.complete(lease)
        assert (await world.job(parent)).state is State.COMPLETED
        assert EventType.JOB_REOPENED not in await told(world, parent)
        await world.healthy()


async def test_a_retry_reopens_a_fan_out_that_has_ended(tmp_path: Path) -> None:
    """I20: with one event, however many of its cells are retried; it ends again with the last."""
    async with World(ONCE, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix=FOUR)
        leases = await world.claim(4)
        await world.engine.settle([Failed(lease, Fault.INVALID_INPUT) for lease in leases])
        assert (await world.job(parent)).state is State.FAILED
        first, second = leases[:2]
        await asyncio.gather(world.engine.retry(first.job), world.engine.retry(second.job))
        reopened = await world.job(parent)
        assert (reopened.state, reopened.cells_left) == (State.RUNNING, 2)
        assert (await told(world, parent)).count(EventType.JOB_REOPENED) == 1
        assert len(await world.engine.retry_failed(parent)) == 2
        for lease in await world.claim(9):
            await world.engine.complete(lease)
        found = await world.job(parent)
        assert (found.state, found.error) == (State.COMPLETED, None)
        assert await told(world, parent) == [
            EventType.WAITING,
            EventType.JOB_FAILED,
            EventType.JOB_REOPENED,
            EventType.JOB_COMPLETE,
        ]
        await world.healthy()


async def test_a_retry_and_the_end_of_the_fan_out_at_once_lose_nothing(tmp_path: Path) -> None:
    """I20: the last cell ends while failed ones are retried, one by one and all together. Each runs
    once more, the count is right, and the parent ends with the last."""
    async with World(ONCE, tmp_path / "ledger.db") as world:
        for _ in range(8):
            parent = await world.submit(matrix=FOUR)
            *bad, last = await world.claim(4)
            await world.engine.settle([Failed(lease, Fault.INVALID_INPUT) for lease in bad])
            outcomes = await asyncio.gather(
                world.engine.complete(last),
                world.engine.retry(bad[0].job),
                world.engine.retry(bad[0].job),
                world.engine.retry_failed(parent),
                return_exceptions=True,
            )
            assert isinstance(outcomes[0], Settled)
            assert all(isinstance(each, Settled | list | WrongState | None) for each in outcomes)
            assert (await states(world, parent))[State.QUEUED] == 3
            found = await world.job(parent)
            assert (found.state, found.cells_left) == (State.RUNNING, 3)
            for lease in await world.claim(9):
                await world.engine.complete(lease)
            assert (await world.job(parent)).state is State.COMPLETED
        await world.healthy()


async def test_the_same_retry_again_queues_nothing(tmp_path: Path) -> None:
    """I6: an operation with the same name counts once; without failed cells it is refused."""
    async with World(ONCE, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2")})
        for lease in await world.claim(2):
            await world.engine.fail(lease)
        assert len(await world.engine.retry_failed(parent, op="once")) == 2
        assert await world.engine.retry_failed(parent, op="once") == []
        with pytest.raises(WrongState, match="retry of failed executions"):
            await world.engine.retry_failed(parent)
        alone = await world.submit()
        with pytest.raises(InvalidInput, match="only a fan-out"):
            await world.engine.retry_failed(alone)
        await world.engine.cancel(parent)
        with pytest.raises(WrongState, match="cancelled"):
            await world.engine.retry_failed(parent)


async def test_a_retry_takes_a_pending_place_for_every_cell(tmp_path: Path) -> None:
    """I13: as a submit and a resume do."""
    tiers = Tiers([Tier("only", pending=3, max_retries=0)], default="only")
    async with World(catalog(Service("work"), tiers=tiers), tmp_path / "ledger.db") as world:
        parent = await world.submit(user="ada", matrix={"q": ("1", "2")})
        for lease in await world.claim(2):
            await world.engine.fail(lease)
        for _ in range(2):
            await world.submit(user="ada")
        with pytest.raises(Refused, match="at most 3 jobs"):
            await world.engine.retry_failed(parent)
        cell, other = await cells_of(world, parent)
        await world.engine.retry(cell.id)
        with pytest.raises(Refused, match="at most 3 jobs"):
            await world.engine.retry(other.id)
        await world.healthy()


# --- stop ----------------------------------------------------------------------------------------
async def test_a_failed_cell_stops_the_others(tmp_path: Path) -> None:
    """I20: completed ones keep their results; queued and running ones end as STOPPED, at once, and
    a late result is refused. All of them can be retried together."""
    async with World(ONCE, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix=FOUR, on_cell_failure=STOP)
        done, bad, running = await world.claim(3)
        await world.engine.complete(done, {"kept": True})
        await world.engine.fail(bad, Fault.INVALID_INPUT)
        found = await ended(world, parent)
        assert found.error is not None
        assert (found.state, found.error.code) == (State.FAILED, Code.CELLS_FAILED)
        assert found.error.message == "3 of 4 executions did not complete"
        assert found.on_cell_failure is STOP
        codes = Counter(cell.error.code for cell in await cells_of(world, parent) if cell.error)
        assert codes == {Code.STOPPED: 2, Code.INVALID_INPUT: 1}
        with pytest.raises(StaleLease):
            await world.engine.complete(running)
        assert await world.claim(9) == []
        assert (await told(world, parent))[-1] is EventType.JOB_FAILED
        assert len(await world.engine.retry_failed(parent)) == 3
        for lease in await world.claim(9):
            await world.engine.complete(lease)
        assert (await world.job(parent)).state is State.COMPLETED
        await world.healthy()


async def test_a_cell_that_is_tried_again_stops_nothing(tmp_path: Path) -> None:
    """I20: only a cell that has failed for good; and a cancelled one is not a failure."""
    async with World(catalog(Service("work", max_attempts=2)), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix=FOUR, on_cell_failure=STOP)
        flaky, gone = await world.claim(2)
        await world.engine.fail(flaky)
        await world.engine.cancel(gone.job)
        await world.engine.sweep()
        assert (await states(world, parent))[State.QUEUED] == 3
        await world.pass_time(600)
        again = [lease for lease in await world.claim(9) if lease.job == flaky.job]
        await world.engine.fail(again[0])
        await ended(world, parent)
        assert (await states(world, parent)) == {
            State.CANCELLED: 1,
            State.DEAD: 1,
            State.FAILED: 2,
        }
        await world.healthy()


async def test_a_stop_that_a_crash_left_is_done_by_the_next_sweep(tmp_path: Path) -> None:
    """I20: the mark is durable, and a sweep of any process finds it."""
    async with World(ONCE, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix=FOUR, on_cell_failure=STOP)
        lease = await world.claim_one()
        ledger = core_of(world.engine).ledger  # and then the process dies
        await ledger.settle([failure(lease, world.clock.now())])
        assert (await world.job(parent)).on_cell_failure is OnCellFailure.STOPPING
        assert (await states(world, parent))[State.QUEUED] == 3
        await world.restart()
        await world.engine.sweep()
        found = await world.job(parent)
        assert (found.state, found.on_cell_failure) == (State.FAILED, STOP)
        assert await world.claim(9) == []
        await world.healthy()


async def test_a_stop_never_reaches_a_fan_out_that_was_reopened(tmp_path: Path) -> None:
    """I20: the end of the parent removes the mark, so a late stop finds nothing to do."""
    async with World(ONCE, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2")}, on_cell_failure=STOP)
        leases = await world.claim(2)
        await world.engine.settle([Failed(lease, Fault.INVALID_INPUT) for lease in leases])
        assert (await world.job(parent)).state is State.FAILED
        await world.engine.retry_failed(parent)
        await world.engine.sweep()
        assert (await states(world, parent)) == {State.QUEUED: 2}
        await world.healthy()


async def test_cells_that_wait_too_long_stop_their_fan_out(tmp_path: Path) -> None:
    """I20: a cell that found no capacity in time has failed."""
    settings = catalog(Service("work", max_attempts=1, max_wait=60))
    async with World(settings, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix=FOUR, on_cell_failure=STOP)
        running = await world.claim_one()
        await world.pass_time(61, sweeps=2)
        found = await world.job(parent)
        assert found.state is State.FAILED
        with pytest.raises(StaleLease):
            await world.engine.complete(running)
        await world.healthy()


async def test_a_stop_needs_a_fan_out_and_a_known_word(tmp_path: Path) -> None:
    async with World(ONCE, tmp_path / "ledger.db") as world:
        with pytest.raises(InvalidInput, match="matrix"):
            await world.submit(on_cell_failure=STOP)
        with pytest.raises(InvalidInput, match="continue"):
            await world.submit(matrix=FOUR, on_cell_failure=OnCellFailure.STOPPING)


# --- progress, share, retention ------------------------------------------------------------------
async def test_the_progress_of_a_fan_out_is_seen_while_it_runs(tmp_path: Path) -> None:
    """I33: the counts by state, the percentage, and a listener that hears of it within a sweep."""
    async with World(ONCE, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix=FOUR)
        good, bad, _ = await world.claim(3)
        heard = world.engine.follow(parent)
        assert (await anext(heard)) is not None
        await world.engine.complete(good)
        await world.engine.fail(bad)
        view = await world.engine.view(parent)
        assert view.cells == {
            State.COMPLETED: 1,
            State.DEAD: 1,
            State.RUNNING: 1,
            State.QUEUED: 1,
        }
        await world.engine.sweep()
        async with asyncio.timeout(20):
            seen = await anext(heard)
        assert seen is not None
        assert seen.shown_progress is not None
        assert (seen.shown_progress.percent, seen.shown_progress.text) == (
            50,
            "2 of 4 executions have ended",
        )
        await heard.aclose()


async def test_every_cell_counts_for_the_fair_share_of_its_user(tmp_path: Path) -> None:
    """I11: a user with one job does not wait behind the cells of another."""
    async with World(catalog(Service("work")), tmp_path / "ledger.db") as world:
        await world.submit(user="ada", matrix={"q": tuple(map(str, range(50)))})
        lone = [await world.submit(user=user) for user in ("bob", "cleo")]
        order = [(await world.claim_one()).job for _ in range(6)]
        assert set(lone) <= set(order[:4])


async def test_a_cell_is_kept_as_long_as_its_parent(tmp_path: Path) -> None:
    """I30: however long before the parent it has ended. Then both are removed together."""
    settings = catalog(Service("work"), limits=Limits(keep_finished=7200))
    async with World(settings, tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2")})
        first = await world.claim_one()
        await world.engine.complete(first, {"kept": True})
        await world.pass_time(10_000, sweeps=20)
        await world.engine.complete(await world.claim_one())
        await world.pass_time(3600, sweeps=20)
        assert len(await cells_of(world, parent)) == 2
        _, context = await world.engine.payload(first.job)
        assert context
        await world.pass_time(7200, sweeps=20)
        assert (await cells_of(world, parent)) == []
        assert await world.engine.jobs([parent]) == {}
        await world.healthy()


@pytest.mark.long
async def test_ten_thousand_cells(tmp_path: Path) -> None:
    """S13: submitted at once, listed by pages, run, stopped by one failure, retried, cancelled; and
    another user's job is served meanwhile."""
    async with World(catalog(Service("work", max_attempts=1)), tmp_path / "ledger.db") as world:
        matrix = {
            "question": tuple(map(str, range(500))),
            "tone": tuple("abcde"),
            "style": tuple("1234"),
        }
        parent = await world.submit(user="ada", matrix=matrix, on_cell_failure=STOP)
        seen: set[str] = set()
        cursor = None
        while True:
            page = await world.engine.list_jobs(Filter(parent=parent), cursor, 200)
            seen.update(cell.id for cell in page.jobs)
            cursor = page.next
            if cursor is None:
                break
        assert len(seen) == 10_000
        other = (await world.engine.submit(NewJob("work", user="bob"))).job
        assert other in {lease.job for lease in await world.claim(2)}
        worker = Worker("w", capacity=500)
        leases = await world.engine.claim(worker, 500)
        await world.engine.settle([Done(lease, {"x": 1}) for lease in leases[1:]])
        await world.engine.settle([Failed(leases[0], Fault.INVALID_INPUT)])
        assert (await ended(world, parent)).state is State.FAILED
        assert await world.engine.claim(worker, 500) == []
        again = await world.engine.retry_failed(parent)
        assert len(again) == 10_000 - (await world.engine.cell_counts(parent))[State.COMPLETED]
        assert (await world.engine.load())[0] == len(again)
        await world.engine.cancel(parent)
        assert (await world.engine.load())[0] == 0
        assert await world.engine.claim(worker, 500) == []
        await world.healthy()
