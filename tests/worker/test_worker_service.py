"""The desk of pull workers: what becomes of polls whose callers are gone, or ask twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlane.ids import token
from fairlane.ledger.messages import Request
from fairlane.model.service import Executor, Service
from fairlane.model.state import State
from fairlane.model.worker import Worker, WorkerState
from fairlane.worker_protocol import WorkerService
from fairlane.worker_protocol.messages import News, Offer, PollAsk, Ref, Result
from tests.core import core_of
from tests.world import World, catalog

pytestmark = pytest.mark.timeout(20)


@asynccontextmanager
async def desks(world: World, n: int = 1) -> AsyncIterator[list[WorkerService]]:
    """As many as there would be processes."""
    found = [WorkerService(world.engine) for _ in range(n)]
    for worker_service in found:
        worker_service.start()
    try:
        yield found
    finally:
        for worker_service in found:
            await worker_service.stop()


async def gone() -> None:
    """The caller hung up before it asked."""


async def test_what_a_poll_brings_for_a_caller_that_is_gone_is_given_back(tmp_path: Path) -> None:
    """I18: without costing an attempt."""
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        job = await world.submit()
        worker = await worker_service.register(Offer(), "k")
        assert await worker_service.poll(worker, PollAsk(1, wait=20), gone) == News()
        found = await world.job(job)
        assert (found.state, found.attempt, found.fence) == (State.QUEUED, 0, 1)
        (task,) = (await worker_service.poll(worker, PollAsk(1, wait=0))).tasks
        assert task.attempt == 1


async def test_a_poll_that_is_cancelled_gives_back_what_it_brings(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        async with desks(world) as (worker_service,):
            worker = await worker_service.register(Offer(), "k")
            polling = asyncio.create_task(worker_service.poll(worker, PollAsk(1, wait=20)))
            while not (await core_of(world.engine).index.stats()).idle:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
            job = await world.submit()
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        found = await world.job(job)
        assert (found.state, found.attempt) == (State.QUEUED, 0)


async def test_the_same_poll_twice_at_once_gets_one_set_of_leases(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        worker = await worker_service.register(Offer(), "k")
        first = asyncio.create_task(
            worker_service.poll(worker, PollAsk(1, wait=20, name="p", first=True))
        )
        while not (await core_of(world.engine).index.stats()).idle:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        second = asyncio.create_task(worker_service.poll(worker, PollAsk(1, wait=20, name="p")))
        assert await first == News()
        job = await world.submit()
        await world.submit()
        (task,) = (await second).tasks
        assert task.id == job
        assert (await worker_service.poll(worker, PollAsk(1, wait=20, name="p"))).tasks == (task,)


async def test_a_lease_ended_elsewhere_ends_an_open_poll_within_half_a_second(
    tmp_path: Path,
) -> None:
    """I22: the ledger alone knows of it."""
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        job = await world.submit()
        worker = await worker_service.register(Offer(), "k")
        (task,) = (await worker_service.poll(worker, PollAsk(1, wait=0))).tasks
        polling = asyncio.create_task(
            worker_service.poll(worker, PollAsk(0, wait=20, leases=(task.ref,)))
        )
        while not core_of(world.engine).subscriptions.jobs():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        request = Request(job, None, token(), world.clock.now())
        await core_of(world.engine).ledger.cancel(request, frozenset())
        world.clock.advance(500_000)
        assert await polling == News((), (job,), (), drain=False)


async def test_two_open_polls_may_name_the_same_lease(tmp_path: Path) -> None:
    """I18: a worker whose connection broke asks again while its earlier poll is still open. Both
    polls end properly, and both hear of a cancel."""
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        job = await world.submit()
        worker = await worker_service.register(Offer(), "k")
        (task,) = (await worker_service.poll(worker, PollAsk(1, wait=0))).tasks
        calls = [PollAsk(1, wait=20, name=name, leases=(task.ref,)) for name in ("p", "q", "r")]
        first, second, third = (
            asyncio.create_task(worker_service.poll(worker, call)) for call in calls
        )
        while (await core_of(world.engine).index.stats()).idle < 3:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        other = await world.submit()
        polls = {first, second, third}
        done, waiting = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        assert [each.id for poll in done for each in (await poll).tasks] == [other]
        await world.engine.cancel(job)
        assert [(await poll).cancel for poll in waiting] == [(job,), (job,)]
        assert not core_of(world.engine).subscriptions.jobs()


async def test_what_a_worker_ends_itself_is_no_news_to_its_open_poll(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        await world.submit()
        worker = await worker_service.register(Offer(), "k")
        (task,) = (await worker_service.poll(worker, PollAsk(1, wait=0))).tasks
        polling = asyncio.create_task(
            worker_service.poll(worker, PollAsk(1, wait=20, leases=(task.ref,)))
        )
        while not (await core_of(world.engine).index.stats()).idle:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        await worker_service.report(worker, [Result(task.ref, "completed")])
        world.clock.advance(500_000)
        job = await world.submit()
        assert [each.id for each in (await polling).tasks] == [job]


async def test_a_state_goes_only_onward_until_a_worker_is_put_anew(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        ledger, now = core_of(world.engine).ledger, world.clock.now()
        await ledger.put_worker(Worker("w", version="1"), now)
        told = [
            (WorkerState.ACTIVE, WorkerState.ACTIVE),
            (WorkerState.DRAINING, WorkerState.DRAINING),
            (WorkerState.ACTIVE, WorkerState.DRAINING),
            (WorkerState.DEAD, WorkerState.DEAD),
            (WorkerState.DRAINING, WorkerState.DEAD),
        ]
        for says, becomes in told:
            heard = await ledger.record_heartbeat("w", says, now + 5)
            assert heard == Worker("w", version="1", state=becomes)
        last = Worker("w", version="1", state=WorkerState.DEAD)
        assert await ledger.workers() == [(last, now + 5)]
        assert await ledger.worker("w") == last
        assert await ledger.record_heartbeat("nobody", WorkerState.ACTIVE, now) is None
        assert await ledger.worker("nobody") is None


async def test_what_a_worker_holds_is_found_whichever_call_it_got_it_in(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        for _ in range(3):
            await world.submit()
        ledger, worker = core_of(world.engine).ledger, Worker("w")
        (one,) = await world.engine.claim(worker, call="a")
        (two,) = await world.engine.claim(worker)
        (other,) = await world.engine.claim(Worker("w2"))
        assert {job.id for job in await ledger.held("w")} == {one.job, two.job}
        assert {job.id for job in await ledger.held()} == {one.job, two.job, other.job}
        await world.engine.complete(one)
        assert {job.id for job in await ledger.held("w")} == {two.job}


async def test_a_worker_without_named_types_gets_only_what_is_pulled(tmp_path: Path) -> None:
    settings = catalog(Service("pulled"), Service("called", executor=Executor.HTTP))
    async with World(settings, tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        await world.submit("called")
        job = await world.submit("pulled")
        worker = await worker_service.register(Offer(), "k")
        assert [
            each.id for each in (await worker_service.poll(worker, PollAsk(5, wait=0))).tasks
        ] == [job]


async def test_a_result_repeated_at_another_process_is_known_by_its_lease(tmp_path: Path) -> None:
    """I3: also if the worker has tried the task again meanwhile."""
    settings = catalog(Service("work", max_attempts=3))
    async with World(settings, tmp_path / "ledger.db") as world, desks(world, 2) as (here, there):
        job = await world.submit()
        worker = await here.register(Offer(), "k")
        results = []
        for _ in range(2):
            (task,) = (await here.poll(worker, PollAsk(1, wait=0))).tasks
            results.append(Result(Ref(job, task.lease), "failed"))
            await here.report(worker, results[-1:])
            await world.pass_time(30)
        verdicts = await there.report(worker, results)
        assert [(each.code, each.state) for each in verdicts] == [("", State.QUEUED)] * 2


async def test_a_guessed_lease_is_nobodys(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        job = await world.submit()
        worker = await worker_service.register(Offer(), "k")
        await worker_service.poll(worker, PollAsk(1, wait=0))
        other = await worker_service.register(Offer(), "k")
        (verdict,) = await worker_service.report(other, [Result(Ref(job, "guessed"), "completed")])
        assert (verdict.code, verdict.state) == ("not_yours", None)
        (verdict,) = await worker_service.report(worker, [Result(Ref(job, "guessed"), "completed")])
        assert verdict.code == "not_yours", "it has no attempt that ended"
        assert (await world.job(job)).state is State.RUNNING


async def test_a_draining_worker_that_asks_again_gets_what_it_had_and_nothing_new(
    tmp_path: Path,
) -> None:
    """So that it can give back what it never heard of."""
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        for _ in range(2):
            await world.submit()
        worker = await worker_service.register(Offer(), "k")
        first = await worker_service.poll(worker, PollAsk(1, wait=0, name="p", first=True))
        await worker_service.heartbeat(worker, WorkerState.DRAINING, ())
        worker = await worker_service.worker(worker.id, "k")
        again = await worker_service.poll(worker, PollAsk(1, wait=0, name="p"))
        assert (again.tasks, again.drain) == (first.tasks, True)
        assert (await worker_service.poll(worker, PollAsk(1, wait=0, name="q"))).tasks == ()


async def test_workers_that_were_not_heard_of_for_a_day_are_forgotten(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        gone = await worker_service.register(Offer(), "k")
        await world.pass_time(80_000)
        lives = await worker_service.register(Offer(), "k")
        await world.pass_time(10_000, sweeps=100)
        assert [worker.id for worker, _ in await core_of(world.engine).ledger.workers()] == [
            lives.id
        ]
        assert gone.id != lives.id


async def test_a_poll_waits_no_longer_than_two_heartbeats(tmp_path: Path) -> None:
    """A worker that stands still with an open poll must not get the task that it has just lost."""
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        worker = await worker_service.register(Offer(heartbeat=5_000_000), "k")
        polling = asyncio.create_task(worker_service.poll(worker, PollAsk(1, wait=60)))
        while not (await core_of(world.engine).index.stats()).idle:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        world.clock.advance(10_000_000)
        assert await polling == News()


async def stale(world: World, worker_service: WorkerService, worker: Worker) -> tuple[str, News]:
    """A task for a poll that has waited for a while."""
    polling = asyncio.create_task(worker_service.poll(worker, PollAsk(1, wait=20, confirms=True)))
    while not (await core_of(world.engine).index.stats()).idle:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)
    world.clock.advance(1_500_000)
    job = await world.submit()
    return job, await polling


async def test_what_a_silent_worker_does_not_confirm_goes_back_and_costs_nothing(
    tmp_path: Path,
) -> None:
    """I18: it stood still while its poll was answered."""
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        worker = await worker_service.register(Offer(heartbeat=5_000_000), "k")
        job, news = await stale(world, worker_service, worker)
        assert news.confirm
        while (found := await world.job(job)).state is State.RUNNING:
            world.clock.advance(500_000)
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        worker = await worker_service.worker(worker.id, "k")
        heard = await worker_service.heartbeat(worker, WorkerState.ACTIVE, [news.tasks[0].ref])
        assert heard.lost == (job,), "continued, it does not start"


@pytest.mark.parametrize("elsewhere", [0, 1])
async def test_what_a_worker_confirms_is_its_own(tmp_path: Path, elsewhere: int) -> None:
    """Also if it says so to another process."""
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world, 2) as found:
        worker = await found[0].register(Offer(heartbeat=5_000_000), "k")
        job, news = await stale(world, found[0], worker)
        world.clock.advance(1_000)
        other = found[elsewhere]
        worker = await other.worker(worker.id, "k")
        heard = await other.heartbeat(worker, WorkerState.ACTIVE, [news.tasks[0].ref])
        assert heard.lost == ()
        silent = await found[0].register(Offer(heartbeat=5_000_000), "k")
        later, _ = await stale(world, found[0], silent)
        while (await world.job(later)).state is State.RUNNING:  # those before it are decided first
            world.clock.advance(500_000)
        assert (await world.job(job)).state is State.RUNNING


async def test_a_poll_that_is_answered_at_once_needs_no_confirmation(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world, desks(world) as (worker_service,):
        await world.submit()
        worker = await worker_service.register(Offer(), "k")
        assert not (await worker_service.poll(worker, PollAsk(1, wait=20, confirms=True))).confirm
