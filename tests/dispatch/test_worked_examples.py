"""The gateway at work: paying and free users, many dispatchers, crashes and failures."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.demo.priority_service import DemoPriorityService
from fairlane.demo.services import SimulatedExecution, SimulatedService
from fairlane.dispatch import Dispatcher
from fairlane.errors import WrongState
from fairlane.model.catalog import Catalog
from fairlane.model.endpoint import Endpoint
from fairlane.model.event import EventType
from fairlane.model.job import NewJob
from fairlane.model.service import Fairness
from fairlane.model.state import Code, State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from fairlane.presets import gateway
from fairlane.priority import PriorityService
from tests import stores
from tests.conformance.acts import history
from tests.core import core_of
from tests.dispatch.scene import Held, Scene, called, comes_true, four_services, scene
from tests.world import World, catalog


def scaled(hundredth: Catalog) -> Catalog:
    """The gateway's promotions a hundred times sooner."""
    tiers = [
        replace(tier, promote={name: after / 100 for name, after in tier.promote.items()})
        for tier in hundredth.tiers.all
    ]
    services = [replace(each, fairness=Fairness.NONE) for each in hundredth.services.values()]
    return Catalog(Tiers(tiers, default="medium"), services, pipelines=hundredth.pipelines)


async def let_time_pass(at: Scene, seconds: int) -> None:
    """In small steps, so that leases are renewed as they would be."""
    for _ in range(seconds):
        at.world.clock.advance(1_000_000)
        await at.world.engine.sweep()
        await asyncio.sleep(0)


async def test_a_paying_user_goes_through_the_whole_pipeline_and_waits_for_one_slot_only(
    tmp_path: Path,
) -> None:
    held = Held()
    services = four_services()
    services[2].work = held
    async with scene(tmp_path, *services, settings=gateway()) as at, AsyncExitStack() as stack:
        source = await stack.enter_async_context(DemoPriorityService({"john": "high"}).serving())
        await stack.enter_async_context(PriorityService(at.world.engine, source.url))
        other = await at.world.submit("image_gen", user="other", tier="high")
        await services[2].until(lambda it: it.running == 1)
        job = await at.world.submit("full_pipeline", input={"prompt": "a robot"}, user="john")
        async for event in at.world.engine.events(job):
            if event.message == "Waiting for image_gen (3/4)":
                break
        assert services[2].running == 1, "it waits for the slot"
        held.let_go()
        ended = await at.ended(job)
        assert (ended.state, ended.tier) == (State.COMPLETED, "high")
        assert (await at.ended(other)).state is State.COMPLETED
        assert [event.message for event in await history(at.world, job)] == [
            f"{word} {service} ({n}/4)"
            for n, service in enumerate(gateway().services, start=1)
            for word in ("Waiting for", "Running", "Completed")
        ] + ["Completed"]
        assert max(each.most - each.limit for each in services) <= 0


async def test_a_free_user_waits_is_promoted_and_served(tmp_path: Path) -> None:
    held = Held()
    services = four_services()
    services[0].work = held
    async with scene(tmp_path, *services, settings=scaled(gateway())) as at:
        enhancer = services[0]
        await at.world.submit_all(
            [NewJob("prompt_enhancer", user=f"pro {n}", tier="high") for n in range(5)]
        )
        await enhancer.until(lambda it: it.running == 5)
        alice = await at.world.submit("text_only", user="alice", tier="low")
        await let_time_pass(at, 12)
        assert (await at.world.job(alice)).level == "low"
        await let_time_pass(at, 12)
        job = await at.world.job(alice)
        assert (job.state, job.tier, job.level) == (State.QUEUED, "low", "medium")
        assert EventType.JOB_FAILED not in [each.type for each in await history(at.world, alice)]
        held.let_go()
        assert (await at.ended(alice)).state is State.COMPLETED
        promotions = [
            event.data
            for event in await history(at.world, alice)
            if event.type is EventType.JOB_PROMOTED
        ]
        assert promotions == [{"old": "low", "new": "medium"}]


async def test_ten_dispatchers_on_one_endpoint_never_call_it_twice_at_once(tmp_path: Path) -> None:
    service = SimulatedService("image_gen", limit=1)
    settings = catalog(called("image_gen", limit=1))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.serving())
        world = await stack.enter_async_context(World(settings, tmp_path / "ledger.db"))
        endpoints = {"image_gen": Endpoint(service.url)}
        for _ in range(10):
            await stack.enter_async_context(Dispatcher(world.engine, endpoints))
        jobs = await world.submit_all([NewJob("image_gen", user=f"u{n}") for n in range(30)])
        for job in jobs:
            assert (await world.engine.wait(job)).state is State.COMPLETED
        assert (service.most, service.refused, len(service.calls)) == (1, 0, 30)
        await world.healthy()


async def test_the_slot_of_a_crashed_dispatcher_comes_back_when_its_call_must_be_over(
    tmp_path: Path,
) -> None:
    """Its job is back in line with the lease; the slot only when the call cannot run any more."""
    service = SimulatedService("image_gen", limit=1)
    settings = catalog(called("image_gen", limit=1, timeout=60, max_attempts=3))
    async with service.serving(), World(settings, tmp_path / "ledger.db") as world:
        job = await world.submit("image_gen")
        await world.claim_one(Worker("crashed"))
        async with Dispatcher(world.engine, {"image_gen": Endpoint(service.url)}):
            await world.pass_time(16)
            assert (await world.job(job)).state is State.QUEUED
            await world.pass_time(30)
            view = await world.engine.view(job)
            assert "held" in [reason.code for reason in view.reasons]
            assert not service.calls
            await world.pass_time(15)
            assert (await world.engine.wait(job)).state is State.COMPLETED
            assert [call.attempt for call in service.calls] == [2]


async def test_a_transient_failure_is_got_over(tmp_path: Path) -> None:
    """A router's glitch: the same step again, later, without anybody's help."""
    services = four_services()[:2]
    services[1].switches.drops = 1
    settings = gateway()
    async with scene(tmp_path, *services, settings=settings) as at:
        job = await at.world.submit("text_only", user="ada")
        await at.until_attempts(job, 2)
        await at.world.pass_time(2)
        ended = await at.ended(job)
        assert ended.state is State.COMPLETED
        assert len(services[0].calls) == 1, "a finished step is not called again"
        assert [call.attempt for call in services[1].calls] == [1, 2]
        view = await at.world.engine.view(job)
        assert view.context["step_1_fast_chat_llm__attempts"] == 2


async def test_a_permanent_failure_ends_the_job_whatever_it_was_before(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.service.switches.drops = 1
        job = await at.world.submit()
        await at.until_queued(job)
        at.service.switches.status = 503
        await at.world.pass_time(2)
        await at.service.until(lambda it: len(it.calls) == 2)
        await at.until_attempts(job, 2)
        at.service.switches.status = 500
        await at.world.pass_time(4)
        ended = await at.ended(job)
        assert ended.state is State.FAILED
        assert ended.error is not None
        assert ended.error.code is Code.SERVICE_ERROR
        with pytest.raises(WrongState):
            await at.world.engine.resume(job)


async def test_resume_goes_on_where_it_stopped_and_calls_no_finished_step_again(
    tmp_path: Path,
) -> None:
    services = four_services()[:2]
    async with scene(tmp_path, *services, settings=gateway()) as at:
        await at.world.engine.change("services", "fast_chat_llm", "paused", value=True)
        job = await at.world.submit("text_only", user="ada", max_wait=30_000_000)
        async for event in at.world.engine.events(job):
            if event.message == "Waiting for fast_chat_llm (2/2)":
                break
        await at.world.pass_time(31)
        failed = await at.world.job(job)
        assert failed.error is not None
        assert (failed.state, failed.error.code) == (State.FAILED, Code.RESOURCE_EXHAUSTED)
        await at.world.engine.change("services", "fast_chat_llm", "paused", value=False)
        await at.world.engine.resume(job)
        assert (await at.ended(job)).state is State.COMPLETED
        assert [len(each.calls) for each in services] == [1, 1]
        assert "step_0_prompt_enhancer" in services[1].calls[0].context


@pytest.mark.long
@pytest.mark.parametrize("limit", [1, 4])
async def test_a_sick_service_harms_no_job_and_is_hardly_asked(tmp_path: Path, limit: int) -> None:
    """503 for a minute with 1,000 jobs waiting (fewer on slower stores): nothing dies, and the
    service hears of at most limit + 1 jobs between two probes."""
    service = SimulatedService("work", limit=limit)
    settings = catalog(
        called("work", limit=limit, max_attempts=3), tiers=Tiers([Tier("only", max_retries=2)])
    )
    async with scene(tmp_path, service, settings=settings) as at:
        heard_at: list[int] = []
        begin = at.world.clock.now()

        def remember(call: SimulatedExecution) -> None:
            heard_at.append((at.world.clock.now() - begin) // 1000)

        service.heard = remember
        service.switches.status = 503
        number = 1000 if isinstance(stores.present, stores.Embedded) else 200
        jobs = await at.world.submit_all([NewJob("work", user=f"u{n % 50}") for n in range(number)])
        await service.until(lambda it: len(it.calls) >= 2)
        for _ in range(240):
            await quiet(at)
            at.world.clock.advance(250_000)
        service.switches.status = 0
        heard = list(heard_at)
        while await at.world.engine.count(State.COMPLETED) < len(jobs):
            at.world.clock.advance(1_000_000)
            await at.world.engine.sweep()
        assert await at.world.engine.count(State.DEAD) == 0
        assert await at.world.engine.count(State.FAILED) == 0
        assert service.most <= limit
        windows = [sum(since <= each < since + 1000 for each in heard) for since in heard]
        assert max(windows) <= limit + 1, heard
        assert 5 <= len(heard) <= 14, heard


async def quiet(at: Scene) -> None:
    """Nothing is called, and the dispatcher waits for something to do."""
    while True:
        for _ in range(10):
            await asyncio.sleep(0)
        await comes_true(lambda: at.dispatcher.running == 0)
        if (await core_of(at.world.engine).index.stats()).idle:
            return
