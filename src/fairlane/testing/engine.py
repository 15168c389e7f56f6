"""A queue for a test: the real engine over nothing that lasts, and time that passes when told."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlane.clock import ManualClock, seconds
from fairlane.compose import embedded
from fairlane.engine import Engine
from fairlane.model.catalog import Catalog
from fairlane.model.job import Job, Json, NewJob
from fairlane.presets import tasks
from fairlane.worker import Worker

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of our own in it


class Queue:
    """`engine` has every verb; `clock` stands still until `pass_time`."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine, self.clock = engine, clock

    async def submit(self, name: str, input: Json = None, **more: Any) -> str:  # noqa: A002 - as jobs call it
        """One job; its id. `more` as in `NewJob`."""
        return (await self.engine.submit(NewJob(name, input, **more))).job

    async def pass_time(self, duration: float) -> None:
        """So many seconds go by, and what has to happen by itself happens."""
        self.clock.advance(seconds(duration))
        await self.engine.sweep()

    async def ended(self, job: str) -> Job:
        """The job when it is over."""
        return await self.engine.wait(job)

    async def result(self, job: str) -> Json:
        """What the last step of a job made, once it is over."""
        await self.ended(job)
        _, context = await self.engine.payload(job)
        steps = [value for name, value in context.items() if not name.endswith("__attempts")]
        return steps[-1]["data"] if steps else None

    @asynccontextmanager
    async def working(self, worker: Worker) -> AsyncIterator[None]:
        """The worker runs what comes, until the block ends."""
        task = asyncio.create_task(worker.serve_on(self.engine))
        try:
            yield
        finally:
            worker.drain()
            await task


@asynccontextmanager
async def queue(catalog: Catalog | None = None) -> AsyncIterator[Queue]:
    """Any task type and three tiers, unless there are settings."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory(prefix="fairlane-", dir=MEMORY) as folder:
        engine = await embedded(
            catalog or tasks(), Path(folder) / "ledger.db", clock=clock, sweeping=False
        )
        async with engine:
            yield Queue(engine, clock)
