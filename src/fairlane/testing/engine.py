"""A test fixture: the real engine over temporary stores, with a manual clock."""

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
from fairlane.model.job_result import result_of
from fairlane.presets import tasks
from fairlane.worker import Worker

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of our own in it


class Queue:
    """A queue for a test. `engine` has every operation; `clock` moves only in `pass_time`."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine, self.clock = engine, clock

    async def submit(self, name: str, input: Json = None, **more: Any) -> str:  # noqa: A002 - as jobs call it
        """Submit one job and return its id. `more`: other fields of `NewJob`."""
        return (await self.engine.submit(NewJob(name, input, **more))).job

    async def pass_time(self, duration: float) -> None:
        """Advance the clock by this many seconds and run one round of maintenance."""
        self.clock.advance(seconds(duration))
        await self.engine.sweep()

    async def ended(self, job: str) -> Job:
        """Wait until the job has ended, and return it."""
        return await self.engine.wait(job)

    async def result(self, job: str) -> Json:
        """Wait until the job has ended, and return its result. None unless it is completed."""
        ended = await self.ended(job)
        _, context = await self.engine.payload(job)
        return result_of(ended, context)

    @asynccontextmanager
    async def working(self, worker: Worker) -> AsyncIterator[None]:
        """The worker runs jobs until the block ends."""
        task = asyncio.create_task(worker.serve_on(self.engine))
        try:
            yield
        finally:
            worker.drain()
            await task


@asynccontextmanager
async def queue(catalog: Catalog | None = None) -> AsyncIterator[Queue]:
    """A queue for a test. Without `catalog`: any task type and three tiers."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory(prefix="fairlane-", dir=MEMORY) as folder:
        engine = await embedded(
            catalog or tasks(), Path(folder) / "ledger.db", clock=clock, sweeping=False
        )
        async with engine:
            yield Queue(engine, clock)
