"""Dispatchers that stop, die or lose their ledger: every limit holds, nothing is lost (I8)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from fairlane.compose import cluster
from fairlane.demo.services import SimulatedService
from fairlane.dispatch import Dispatcher
from fairlane.engine import Engine
from fairlane.model.attempt import Outcome
from fairlane.model.endpoint import Endpoint
from fairlane.model.job import NewJob
from fairlane.model.state import State
from fairlane.servers import Databases, Keys
from tests.dispatch.process import LIMITS, DispatcherProcess, dispatching, settings
from tests.dispatch.scene import Held, called
from tests.proxy import Proxy
from tests.world import catalog

LEASE = 0.9
CALL = 0.4
Condition = Callable[[], Awaitable[bool]]
JOBS = {"one": 6, "four": 24, "loose": 6}


async def test_no_service_ever_has_more_calls_than_its_limit_though_dispatchers_stop_and_die(
    postgres_server: Databases, redis_server: Keys
) -> None:
    """Calls that outlive their caller count: the services go on when somebody hangs up. A stopped
    dispatcher loses its leases and finds out when it goes on; a killed one never does."""
    services = {name: SimulatedService(name, seconds=CALL) for name in LIMITS}
    async with AsyncExitStack() as stack:
        for service in services.values():
            await stack.enter_async_context(service.serving())
        where = {
            "database": await postgres_server.new_database(),
            "redis": redis_server.url,
            "prefix": "{physical}:",
        }
        opened = await cluster(
            settings(), where["database"], where["redis"], prefix=where["prefix"], unsafe=True
        )
        engine = await stack.enter_async_context(opened)
        endpoints = {name: service.url for name, service in services.items()}
        processes = [
            await stack.enter_async_context(dispatching(endpoints=endpoints, lease=LEASE, **where))
            for _ in range(3)
        ]
        jobs = [
            NewJob(name, user=f"u{n % 7}") for name, number in JOBS.items() for n in range(number)
        ]
        await engine.submit_many(jobs)
        stopped, killed, last = processes
        await eventually(holds(engine, stopped))
        stopped.signal(signal.SIGSTOP)
        await eventually(holds(engine, killed))
        killed.signal(signal.SIGKILL)
        await killed.ended()
        await eventually(has_lost(engine, stopped))
        stopped.signal(signal.SIGCONT)
        await eventually(has_lost(engine, killed))
        await eventually(holds(engine, last))
        await engine.change("services", "four", "limit", 2)
        await engine.change("services", "four", "limit", 4)
        await eventually(all_completed(engine, len(jobs)))
        print({name: service.most for name, service in services.items()})
        assert services["one"].most == 1
        assert services["four"].most <= 4
        assert not any(await engine.check())


async def test_a_call_goes_on_while_the_ledger_is_away_and_its_result_is_kept(
    postgres_server: Databases, redis_server: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    """Unreachable is not lost: nothing is cut, and what was made is written when it can be."""
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
        await eventually(said(caplog, "cannot look after leases"))
        assert dispatcher.running == 1
        held.let_go()
        await eventually(said(caplog, "is not settled"))
        proxy.go_on()
        await eventually(all_completed(engine, 1))
        assert (len(service.calls), len(await engine.attempts(job))) == (1, 1)


def said(caplog: pytest.LogCaptureFixture, words: str) -> Condition:
    async def condition() -> bool:
        return words in caplog.text

    return condition


async def eventually(condition: Condition) -> None:
    """What other processes bring about, they do not tell."""
    while not await condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def all_completed(engine: Engine, number: int) -> Condition:
    async def condition() -> bool:
        return await engine.count(State.COMPLETED) == number

    return condition


def holds(engine: Engine, process: DispatcherProcess) -> Condition:
    """It runs something under a lease that holds."""

    async def condition() -> bool:
        slots = await engine.core.ledger.slots()
        jobs = await engine.core.ledger.jobs([slot.job for slot in slots])
        return any(
            job.state is State.RUNNING and (job.worker or "").startswith(process.name)
            for job in jobs.values()
        )

    return condition


def has_lost(engine: Engine, process: DispatcherProcess) -> Condition:
    """One of its leases was taken back."""

    async def condition() -> bool:
        jobs = (await engine.list_jobs(limit=200)).jobs
        attempts = [each for job in jobs for each in await engine.attempts(job.id)]
        return any(
            each.outcome is Outcome.LOST and each.worker.startswith(process.name)
            for each in attempts
        )

    return condition
