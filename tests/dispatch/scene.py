"""A gateway to test with: simulated services over real HTTP, a queue whose clock the test moves,
and a dispatcher between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlane.demo.services import SimulatedExecution, SimulatedService
from fairlane.dispatch import Dispatcher
from fairlane.dispatch.service_call import HttpCaller
from fairlane.model.catalog import Catalog
from fairlane.model.endpoint import Endpoint
from fairlane.model.job import Job
from fairlane.model.service import Executor, Fairness, Service
from fairlane.presets import gateway
from tests.core import core_of
from tests.world import World, catalog


def called(name: str = "work", **more: Any) -> Service:
    """A service that is called by HTTP."""
    return Service(name, executor=Executor.HTTP, fairness=Fairness.NONE, **more)


def four_services() -> list[SimulatedService]:
    """The four services of the gateway preset, with their limits, as fast as they can."""
    return [
        SimulatedService(service.name, service.limit) for service in gateway().services.values()
    ]


async def comes_true(condition: Callable[[], bool]) -> None:
    """Waits for what other tasks of this loop bring about, without any time passing."""
    while not condition():  # noqa: ASYNC110 - there is no event for everything
        await asyncio.sleep(0)


class Held:
    """Work that waits until it is let go."""

    def __init__(self) -> None:
        self._gate = asyncio.Event()

    async def __call__(self, call: SimulatedExecution) -> Any:
        await self._gate.wait()
        return {"done": call.job}

    def let_go(self) -> None:
        self._gate.set()


class Scene:
    def __init__(
        self, world: World, dispatcher: Dispatcher, services: dict[str, SimulatedService]
    ) -> None:
        self.world, self.dispatcher, self.services = world, dispatcher, services
        self.service = next(iter(services.values()))

    def call_at(self, url: str) -> None:
        """The service is somewhere else from now on."""
        (service_lane,) = self.dispatcher._service_lanes  # noqa: SLF001
        assert isinstance(service_lane.caller, HttpCaller)
        service_lane.caller.endpoint = Endpoint(url)

    async def ended(self, job: str) -> Job:
        return await self.world.engine.wait(job)

    async def run(self, name: str = "work", **more: Any) -> Job:
        """Submit one job and see it end, without letting time pass."""
        return await self.ended(await self.world.submit(name, **more))

    async def until_attempts(self, job: str, n: int) -> None:
        """Returns when so many attempts have ended."""
        with core_of(self.world.engine).subscriptions.watching(job) as wakeup:
            while len(await self.world.engine.attempts(job)) < n:
                await wakeup.wait()
                wakeup.clear()

    async def until_queued(self, job: str) -> Job:
        """The job once a call of it is over and it waits again."""
        async for _ in self.world.engine.events(job):
            found = await self.world.job(job)
            if found.state == "queued" and found.fence > 0:
                return found
        raise AssertionError("it has ended")


@asynccontextmanager
async def scene(
    path: Path,
    *services: SimulatedService,
    settings: Catalog | None = None,
    endpoint: Endpoint | None = None,
    **dispatcher: Any,
) -> AsyncIterator[Scene]:
    """One service "work" without a limit if none is named."""
    chosen = services or (SimulatedService("work"),)
    async with AsyncExitStack() as stack:
        for service in chosen:
            await stack.enter_async_context(service.serving())
        settings = settings or catalog(
            *(called(each.name, limit=each.limit, max_attempts=3) for each in chosen)
        )
        world = await stack.enter_async_context(World(settings, path / "ledger.db"))
        like = endpoint or Endpoint("")
        endpoints = {each.name: replace(like, url=each.url) for each in chosen}
        made = Dispatcher(world.engine, endpoints, **dispatcher)
        running = await stack.enter_async_context(made)
        yield Scene(world, running, {each.name: each for each in chosen})
