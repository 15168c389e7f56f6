"""While a call runs: its lease is renewed, and it is cut when the lease is gone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fairlane.background import end
from fairlane.demo.services import SimulatedService
from fairlane.dispatch import Dispatcher
from fairlane.dispatch.held_leases import HeldLeases
from fairlane.dispatch.service_call import ServiceCall, open_session
from fairlane.dispatch.service_responses import Bad, Good
from fairlane.errors import SetupError
from fairlane.ids import token
from fairlane.ledger.messages import Request
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.catalog import Catalog
from fairlane.model.endpoint import Endpoint
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.worker import Worker, WorkerState
from tests.core import core_of
from tests.dispatch.scene import Held, called, comes_true, scene
from tests.world import World, catalog

soon = pytest.mark.timeout(20)
"""What is waited for here happens at once or never."""


def settings(limit: int = 1, timeout: float = 100) -> Catalog:
    return catalog(called("work", limit=limit, timeout=timeout, max_attempts=3))


@soon
async def test_a_lease_is_renewed_for_as_long_as_the_call_runs(tmp_path: Path) -> None:
    held = Held()
    service = SimulatedService("work", work=held)
    async with scene(tmp_path, service, settings=settings()) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        for _ in range(5):
            before = (await at.world.job(job)).lease_until or 0
            while (await at.world.job(job)).lease_until == before:
                if at.world.clock.now() < before - 1_000_000:  # who renews may not sleep yet
                    at.world.clock.advance(500_000)
            await at.world.engine.sweep()
        held.let_go()
        assert (await at.ended(job)).state is State.COMPLETED
        assert len(service.calls) == 1


@soon
@pytest.mark.embedded
async def test_a_call_that_its_process_did_not_survive_is_made_again_at_the_next_start(
    tmp_path: Path,
) -> None:
    """I4: nobody waits for a lease that nobody can renew."""
    held = Held()
    service = SimulatedService("work", work=held)
    async with scene(tmp_path, service, settings=settings(limit=2)) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        await core_of(at.world.engine).ledger.close()  # nothing more is written: as good as dead
        await at.world.start()
        assert (await at.world.job(job)).state is State.QUEUED
        (attempt,) = await at.world.engine.attempts(job)
        assert attempt.outcome is Outcome.LOST
        held.let_go()


@soon
async def test_a_cancelled_call_is_cut_at_once_in_this_process(tmp_path: Path) -> None:
    """No time passes: the dispatcher hears of it, it does not have to look. The service goes on,
    so its slot stays taken."""
    service = SimulatedService("work", work=Held())
    async with scene(tmp_path, service, settings=settings()) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        await at.world.engine.cancel(job)
        await comes_true(lambda: at.dispatcher.running == 0)
        assert (await at.world.job(job)).state is State.CANCELLED
        assert service.running == 1
        assert len(await core_of(at.world.engine).ledger.slots()) == 1
        await at.world.pass_time(101)
        assert not await core_of(at.world.engine).ledger.slots()


@soon
async def test_a_call_cancelled_in_another_process_is_cut_within_a_second(tmp_path: Path) -> None:
    """The ledger alone knows of it, and half a second passes."""
    service = SimulatedService("work", work=Held())
    async with scene(tmp_path, service, settings=settings()) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        request = Request(job, None, token(), at.world.clock.now())
        await core_of(at.world.engine).ledger.cancel(request, frozenset({"work"}))
        at.world.clock.advance(500_000)
        await comes_true(lambda: at.dispatcher.running == 0)


async def test_a_call_whose_lease_was_taken_back_is_cut_and_its_result_is_not_used(
    tmp_path: Path,
) -> None:
    """A pause so long that somebody else took the job over: the renewal comes too late."""
    service = SimulatedService("work", work=Held())
    async with scene(tmp_path, service, settings=settings(limit=0)) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        at.world.clock.advance(16_000_000)
        await at.world.engine.sweep()
        at.world.clock.advance(500_000)
        await at.until_queued(job)
        assert [each.outcome for each in await at.world.engine.attempts(job)] == ["lost"]
        await comes_true(lambda: at.dispatcher.running == 0)
        await at.world.pass_time(6)
        await service.until(lambda it: it.running == 2)


async def test_a_freed_slot_is_used_without_waiting(tmp_path: Path) -> None:
    """Time stands still: whoever sleeps between two jobs would never come to the second."""
    service = SimulatedService("work", limit=2)
    async with scene(tmp_path, service) as at:
        jobs = await at.world.submit_all([NewJob("work", user=f"u{n % 5}") for n in range(30)])
        for job in jobs:
            assert (await at.ended(job)).state is State.COMPLETED
        assert (service.most, service.refused) == (2, 0)


async def test_no_more_is_claimed_than_can_start_now(tmp_path: Path) -> None:
    held = Held()
    service = SimulatedService("work", work=held)
    async with scene(tmp_path, service, settings=settings(limit=0), capacity=3) as at:
        jobs = await at.world.submit_all([NewJob("work")] * 8)
        await service.until(lambda it: it.running == 3)
        assert await at.world.engine.count(State.RUNNING) == 3
        assert await at.world.engine.count(State.QUEUED) == 5
        held.let_go()
        for job in jobs:
            await at.ended(job)
        assert service.most == 3


# --- ending --------------------------------------------------------------------------------------
async def test_a_drained_dispatcher_finishes_what_runs_and_claims_nothing_more(
    tmp_path: Path,
) -> None:
    held = Held()
    service = SimulatedService("work", work=held)
    async with scene(tmp_path, service, settings=settings()) as at:
        first, second = await at.world.submit_all([NewJob("work")] * 2)
        await service.until(lambda it: it.running == 1)
        draining = asyncio.create_task(at.dispatcher.drain(30))
        draining_workers = core_of(at.world.engine).draining
        await comes_true(lambda: bool(draining_workers))
        held.let_go()
        await draining
        assert (await at.world.job(first)).state is State.COMPLETED
        assert (await at.world.job(second)).state is State.QUEUED
        ((worker, _),) = await core_of(at.world.engine).ledger.workers()
        assert worker.state is WorkerState.DEAD


async def test_what_does_not_finish_within_the_grace_is_given_back_and_costs_nothing(
    tmp_path: Path,
) -> None:
    """The service goes on with it, so the slot stays taken until that must be over."""
    service = SimulatedService("work", work=Held())
    async with scene(tmp_path, service, settings=settings(timeout=1_000_000)) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        draining = asyncio.create_task(at.dispatcher.drain(30))
        while not draining.done():  # whenever it begins to wait, its time will come
            at.world.clock.advance(1_000_000)
            await asyncio.sleep(0)
        found = await at.world.job(job)
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        assert [each.outcome for each in await at.world.engine.attempts(job)] == ["released"]
        assert not await at.world.claim()
        await at.world.pass_time(1_000_000)
        assert (await at.world.claim_one()).attempt == 1


async def test_a_drain_that_is_interrupted_is_ended_by_the_next(tmp_path: Path) -> None:
    """Who leaves at once after all must not leave calls behind."""
    service = SimulatedService("work", work=Held())
    async with scene(tmp_path, service, settings=settings()) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        draining = asyncio.create_task(at.dispatcher.drain(30))
        draining_workers = core_of(at.world.engine).draining
        await comes_true(lambda: bool(draining_workers))
        await end(draining)
        await at.dispatcher.drain(0)
        assert at.dispatcher.running == 0
        found = await at.world.job(job)
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        ((worker, _),) = await core_of(at.world.engine).ledger.workers()
        assert worker.state is WorkerState.DEAD


async def test_leaving_the_dispatcher_gives_everything_back(tmp_path: Path) -> None:
    service = SimulatedService("work", work=Held())
    async with service.serving(), World(settings(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        async with Dispatcher(world.engine, {"work": Endpoint(service.url)}):
            await service.until(lambda it: it.running == 1)
        assert (await world.job(job)).state is State.QUEUED


async def test_only_services_that_are_called_have_an_address(tmp_path: Path) -> None:
    async with World(catalog(Service("pulled")), tmp_path / "ledger.db") as world:
        with pytest.raises(SetupError, match="executor is not http"):
            Dispatcher(world.engine, {"pulled": Endpoint("http://127.0.0.1")})


async def test_a_called_service_without_an_address_is_left_alone(tmp_path: Path) -> None:
    others = catalog(called("work"), called("elsewhere"))
    async with scene(tmp_path, SimulatedService("work"), settings=others) as at:
        job = await at.world.submit("elsewhere")
        await at.run()
        assert (await at.world.job(job)).state is State.QUEUED


async def test_a_dispatcher_that_somebody_drains_rests_and_lets_others_work(tmp_path: Path) -> None:
    async with scene(tmp_path, SimulatedService("work"), settings=settings()) as at:
        engine = at.world.engine
        ((worker, _),) = await core_of(engine).ledger.workers()
        await engine.drain(worker)
        job = await at.world.submit()
        lease = await at.world.claim_one()
        await engine.complete(lease)
        assert (await at.ended(job)).worker == "w"
        assert not at.service.calls


CANCELLABLE = Endpoint("", cancel_path="/v1/cancel")


async def slots_are_free(world: World) -> None:
    while await core_of(world.engine).ledger.slots():  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)


@soon
async def test_a_service_that_confirms_the_end_of_a_cancelled_call_is_free_at_once(
    tmp_path: Path,
) -> None:
    service = SimulatedService("work", limit=1, work=Held())
    async with scene(tmp_path, service, settings=settings(), endpoint=CANCELLABLE) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        await at.world.engine.cancel(job)
        await slots_are_free(at.world)
        assert service.cancels == [(job, 0, 1)]
        service.work = None
        assert (await at.run()).state is State.COMPLETED
        assert service.most == 1


@soon
async def test_a_call_whose_connection_broke_is_ended_before_its_retry(tmp_path: Path) -> None:
    service = SimulatedService("work", limit=1)
    service.switches.drops = 1
    async with scene(tmp_path, service, settings=settings(), endpoint=CANCELLABLE) as at:
        job = await at.world.submit()
        await at.until_queued(job)
        await slots_are_free(at.world)
        assert service.cancels == [(job, 0, 1)]


@soon
async def test_a_slot_is_held_while_the_service_does_not_confirm_the_end(tmp_path: Path) -> None:
    service = SimulatedService("work", limit=1, work=Held())
    service.switches.keeps_cancelled = True
    async with scene(tmp_path, service, settings=settings(), endpoint=CANCELLABLE) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        deadline = (await at.world.job(job)).deadline
        await at.world.engine.cancel(job)
        await comes_true(lambda: len(service.cancels) == 1)
        waiting = await at.world.submit()
        view = await at.world.engine.view(waiting)
        (held,) = [reason for reason in view.reasons if reason.code == "held"]
        assert held.until == deadline
        assert "may still be running" in held.text
        assert view.eta is not None
        assert view.eta.p50 >= (deadline or 0) - at.world.clock.now()
        service.switches.keeps_cancelled = False
        while len(service.cancels) == 1:
            at.world.clock.advance(1_000_000)
            await asyncio.sleep(0)
        await service.until(lambda it: len(it.calls) == 2)
        assert service.most == 1


@soon
async def test_a_call_whose_lease_ends_while_it_connects_is_not_sent(tmp_path: Path) -> None:
    """I8: a process that stood still between its claim and its first byte does not call a service
    whose slot another process may have by now."""
    service = SimulatedService("work")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.serving())
        world = await stack.enter_async_context(World(settings(), tmp_path / "ledger.db"))
        session = await stack.enter_async_context(open_session())
        await world.submit()
        (lease,) = await world.claim()
        call = ServiceCall(lease, Endpoint(service.url), session, world.clock)
        world.clock.advance(lease.lease_until - world.clock.now())
        meaning = await call.make()
        assert isinstance(meaning, Bad)
        assert (meaning.fault, meaning.over) == (Fault.UNAVAILABLE, True)
        assert service.calls == []


@soon
async def test_a_call_whose_lease_was_renewed_while_it_connects_is_sent(tmp_path: Path) -> None:
    """I4: what counts is the end of the lease as last renewed."""
    service = SimulatedService("work")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.serving())
        world = await stack.enter_async_context(World(settings(), tmp_path / "ledger.db"))
        session = await stack.enter_async_context(open_session())
        await world.submit()
        worker = Worker("w")
        (lease,) = await world.claim(1, worker)
        call = ServiceCall(lease, Endpoint(service.url), session, world.clock)
        held = HeldLeases(world.engine)
        connecting = asyncio.create_task(asyncio.Event().wait())
        world.clock.advance(5_000_000)
        with held.holding(call, connecting):
            renewing = asyncio.create_task(held.renew(lambda: [worker]))
            await comes_true(lambda: call.lease_until > lease.lease_until)
            renewing.cancel()
            connecting.cancel()
        world.clock.advance(lease.lease_until - world.clock.now())
        assert isinstance(await call.make(), Good)
        assert len(service.calls) == 1


async def test_a_dispatcher_tied_to_tiers_calls_only_for_their_jobs(tmp_path: Path) -> None:
    async with scene(tmp_path, tiers=frozenset({"high"})) as at:
        low = await at.world.submit(tier="low")
        high = await at.world.submit(tier="high")
        assert (await at.ended(high)).state is State.COMPLETED
        assert (await at.world.job(low)).state is State.QUEUED
        assert [call.job for call in at.service.calls] == [high]
