"""Dispatchers that stop, die or lose their ledger: every limit holds, nothing is lost (I8)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress

import pytest
from redis.asyncio import from_url

from fairlane.compose import cluster
from fairlane.demo.services import SimulatedService
from fairlane.dispatch import Dispatcher
from fairlane.engine import Engine
from fairlane.errors import WrongState
from fairlane.ledger.messages import Filter
from fairlane.model.attempt import Outcome
from fairlane.model.endpoint import Endpoint
from fairlane.model.job import NewJob
from fairlane.model.state import State
from fairlane.servers import Databases, Redis, RedisKeyspace
from tests.core import core_of
from tests.dispatch.process import LIMITS, DispatcherProcess, dispatching, settings
from tests.dispatch.scene import Held, called
from tests.proxy import Proxy
from tests.world import catalog

CALLERS, PROCESSES = 64, 4
Condition = Callable[[], Awaitable[bool]]
JOBS = [NewJob(name) for name in ("one", "four", "four", "four", "loose") * 30]
"""More than can be done in the time."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("lease", "call", "timeout"), [(1.5, 3, 10), pytest.param(2, 8, 20, marks=pytest.mark.long)]
)
async def test_no_service_ever_has_more_calls_than_its_limit_though_dispatchers_stop_and_die(
    postgres_server: Databases, lease: float, call: float, timeout: float
) -> None:
    """I8: 64 dispatchers want to call. Calls that outlive their caller count: the services go on
    when somebody hangs up. A stopped process loses its leases and finds out when it goes on; a
    killed one never does. The index is wiped and a limit changed on the way. A call counts until
    its time limit; that leaves room for one that a busy machine, or the stop, begins late."""
    services = {name: SimulatedService(name, seconds=call) for name in LIMITS}
    async with AsyncExitStack() as stack:
        for service in services.values():
            await stack.enter_async_context(service.serving())
        redis = stack.enter_context(Redis())
        where = {
            "database": await postgres_server.new_database(),
            "redis": redis.url,
            "prefix": "{physical}:",
        }
        opened = await cluster(
            settings(timeout),
            where["database"],
            where["redis"],
            prefix=where["prefix"],
            unsafe=True,
        )
        engine = await stack.enter_async_context(opened)
        endpoints = {name: service.url for name, service in services.items()}
        order = {"endpoints": endpoints, "lease": lease, "timeout": timeout, **where}
        processes = await asyncio.gather(
            *(
                stack.enter_async_context(dispatching(callers=CALLERS // PROCESSES, **order))
                for _ in range(PROCESSES)
            )
        )
        await engine.submit_many(JOBS)
        stopped = await stopped_with_a_lease(engine, processes)
        others = [each for each in processes if each is not stopped]
        killed = await stopped_with_a_lease(engine, others)
        killed.signal(signal.SIGKILL)
        await killed.ended()
        await eventually(has_lost(engine, stopped))
        stopped.signal(signal.SIGCONT)
        await eventually(has_lost(engine, killed))
        await eventually(at_least_completed(engine, 6))
        async with from_url(redis.url) as keys:
            await keys.flushall()
        await engine.change("services", "four", "limit", 2)
        await engine.change("services", "four", "limit", 4)
        for job in (await engine.list_jobs(Filter(states=(State.QUEUED,)), limit=len(JOBS))).jobs:
            with suppress(WrongState):  # done by now
                await engine.cancel(job.id)
        await eventually(nothing_left(engine))
        print({name: f"{service.most} of {LIMITS[name]}" for name, service in services.items()})
        assert services["one"].most == 1
        assert services["four"].most <= 4
        for ended_badly in (State.FAILED, State.DEAD):
            assert await engine.count(ended_badly) == 0
        assert not any(await engine.check())


async def test_a_call_goes_on_while_the_ledger_is_away_and_its_result_is_kept(
    postgres_server: Databases, redis_server: RedisKeyspace, caplog: pytest.LogCaptureFixture
) -> None:
    """I33: unreachable is not lost. Nothing is cut, and what was made is written when it can be."""
    held = Held()
    service = SimulatedService("work", work=held)
    database = await postgres_server.new_database()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.serving())
        proxy = await stack.enter_async_context(Proxy(database))
        opened = await cluster(
            catalog(called("work", max_attempts=1)),
            proxy.url,
            redis_server.url,
            prefix="{away}:",
            sweeping=False,
            unsafe=True,
        )
        engine = await stack.enter_async_context(opened)
        endpoints = {"work": Endpoint(service.url)}
        dispatcher = await stack.enter_async_context(Dispatcher(engine, endpoints))
        job = (await engine.submit(NewJob("work"))).job
        await service.until(lambda it: it.running == 1)
        proxy.refuse()
        await eventually(said(caplog, "cannot check which leases still hold"))
        assert dispatcher.running == 1
        held.let_go()
        await eventually(said(caplog, "is not settled"))
        proxy.go_on()
        await eventually(all_completed(engine, 1))
        assert (len(service.calls), len(await engine.attempts(job))) == (1, 1)


async def test_a_dispatcher_that_starts_while_the_ledger_is_away_works_when_it_returns(
    postgres_server: Databases, redis_server: RedisKeyspace, caplog: pytest.LogCaptureFixture
) -> None:
    """I28: the ledger goes away between the start of the engine and that of the dispatcher."""
    service = SimulatedService("work")
    database = await postgres_server.new_database()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.serving())
        proxy = await stack.enter_async_context(Proxy(database))
        opened = await cluster(
            catalog(called("work")), proxy.url, redis_server.url, prefix="{late}:", unsafe=True
        )
        engine = await stack.enter_async_context(opened)
        await engine.submit(NewJob("work"))
        proxy.refuse()
        dispatcher = Dispatcher(engine, {"work": Endpoint(service.url)})
        starting = asyncio.create_task(stack.enter_async_context(dispatcher))
        await eventually(said(caplog, "is not registered, trying again"))
        proxy.go_on()
        await starting
        await eventually(all_completed(engine, 1))


def said(caplog: pytest.LogCaptureFixture, words: str) -> Condition:
    async def condition() -> bool:
        return words in caplog.text

    return condition


async def eventually(condition: Condition) -> None:
    """What other processes bring about, they do not tell."""
    while not await condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def nothing_left(engine: Engine) -> Condition:
    async def condition() -> bool:
        return not sum(await core_of(engine).ledger.load())

    return condition


def all_completed(engine: Engine, number: int) -> Condition:
    async def condition() -> bool:
        return await engine.count(State.COMPLETED) == number

    return condition


def at_least_completed(engine: Engine, number: int) -> Condition:
    async def condition() -> bool:
        return await engine.count(State.COMPLETED) >= number

    return condition


async def stopped_with_a_lease(
    engine: Engine, processes: Sequence[DispatcherProcess]
) -> DispatcherProcess:
    """One of them, which stands still now and calls a strict service under a lease that holds. One
    that has just finished its call goes on."""
    while True:
        for each in await holders(engine, processes):
            each.signal(signal.SIGSTOP)
            if await holders(engine, [each]):
                return each
            each.signal(signal.SIGCONT)
        await asyncio.sleep(0.02)


async def holders(
    engine: Engine, processes: Sequence[DispatcherProcess]
) -> list[DispatcherProcess]:
    """Those that call a strict service."""
    slots = await core_of(engine).ledger.slots()
    jobs = await core_of(engine).ledger.jobs([slot.job for slot in slots])
    workers = [
        job.worker or ""
        for job in jobs.values()
        if job.state is State.RUNNING and job.name == "four"
    ]
    return [each for each in processes if any(name.startswith(each.name) for name in workers)]


def has_lost(engine: Engine, process: DispatcherProcess) -> Condition:
    """One of its leases was taken back."""

    async def condition() -> bool:
        jobs = [job for job in (await engine.list_jobs(limit=200)).jobs if job.fence]
        attempts = [each for job in jobs for each in await engine.attempts(job.id)]
        return any(
            each.outcome is Outcome.LOST and each.worker.startswith(process.name)
            for each in attempts
        )

    return condition
