"""A queue, a server before it, and a worker that talks to it one way or the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from fairlane import Worker
from fairlane.model.catalog import Catalog
from fairlane.model.job import Job
from fairlane.presets import tasks
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.world import World

Way = Literal["http", "direct"]
WAYS: tuple[Way, ...] = ("http", "direct")


class Scene:
    def __init__(self, world: World, served: Gateway) -> None:
        self.world, self.served = world, served
        self.engine = world.engine

    @asynccontextmanager
    async def working(
        self, worker: Worker, way: Way, key: str | None = None
    ) -> AsyncIterator[asyncio.Task[None]]:
        """The worker runs until the block ends."""
        over_http = way == "http"
        serve = worker.serve(self.served.url, key) if over_http else worker.serve_on(self.engine)
        task = asyncio.create_task(serve)
        try:
            yield task
        finally:
            worker.drain()
            await task

    async def run(self, name: str, parameters: Any = None, **more: Any) -> Job:
        """Submit one task and see it end."""
        return await self.ended(await self.world.submit(name, input=parameters, **more))

    async def ended(self, job: str) -> Job:
        return await self.engine.wait(job)

    async def result(self, job: str) -> Any:
        _, context = await core_of(self.engine).ledger.payload(job)
        outputs = [each for name, each in context.items() if not name.endswith("__attempts")]
        return outputs[-1]["data"]

    async def until(self, job: str, condition: Callable[[Job], bool]) -> Job:
        """The job as soon as it is like that."""
        with core_of(self.engine).subscriptions.watching(job) as wakeup:
            while not condition(found := await self.world.job(job)):
                await wakeup.wait()
                wakeup.clear()
            return found


@asynccontextmanager
async def scene(path: Path, settings: Catalog | None = None) -> AsyncIterator[Scene]:
    world = World(settings or tasks(), path / "ledger.db")
    async with world, gateway(world.engine) as served:
        yield Scene(world, served)
