"""An autoscaler that reads `/api/v1/scale/{service}`, as KEDA does, and real workers."""

from __future__ import annotations

import math
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from fairlane.model.service import Executor, Service
from fairlane.model.state import State
from tests.worker.process import WorkerProcess, working
from tests.worker.scene import Scene, scene
from tests.world import catalog

LIMIT, MOST_WORKERS = 3, 20


class Autoscaler:
    """The loop of KEDA and the horizontal pod autoscaler: the number divided by what one worker can
    do is how many workers there shall be. One that is to go gets SIGTERM, and no longer counts."""

    def __init__(self, at: Scene, stack: AsyncExitStack) -> None:
        self._at, self._stack = at, stack
        self.workers: list[WorkerProcess] = []
        self.leaving: list[WorkerProcess] = []

    async def look(self) -> int:
        """Reads the number and scales. Returns how many workers there are then."""
        async with self._at.served.client() as client:
            value = (await client.get("/api/v1/scale/held")).json()["value"]
        wanted = min(MOST_WORKERS, math.ceil(int(value)))
        while len(self.workers) < wanted:
            starting = working("--url", self._at.served.url, CAPACITY=1)
            self.workers.append(await self._stack.enter_async_context(starting))
        while len(self.workers) > wanted:
            # the hardest choice: a busy worker, if there is one
            gone = max(self.workers, key=lambda each: len(each.in_its_hands()))
            self.workers.remove(gone)
            gone.signal(signal.SIGTERM)
            self.leaving.append(gone)
        return wanted

    async def all_work(self) -> None:
        for worker in self.workers:
            await worker.until(lambda worker=worker: bool(worker.in_its_hands()))  # type: ignore[misc]


@asynccontextmanager
async def scaled(path: Path) -> AsyncIterator[tuple[Scene, Autoscaler]]:
    settings = catalog(Service("held", executor=Executor.PULL, limit=LIMIT, max_attempts=1))
    async with scene(path, settings) as at, AsyncExitStack() as stack:
        yield at, Autoscaler(at, stack)


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_workers_follow_the_work_and_none_of_it_is_lost(tmp_path: Path) -> None:
    async with scaled(tmp_path) as (at, scaler):
        assert await scaler.look() == 0
        files = [tmp_path / f"job-{n}" for n in range(6)]
        jobs = [await at.world.submit("held", input={"file": str(file)}) for file in files]
        assert await scaler.look() == LIMIT, "more workers could not start more"
        await scaler.all_work()
        assert await scaler.look() == LIMIT, "what runs counts: no busy worker is removed"
        done = set()
        for _ in range(4):
            running = [job for job in jobs if (await at.world.job(job)).state is State.RUNNING]
            first = next(job for job in running[1:] if job not in done)
            files[jobs.index(first)].touch()
            await at.ended(first)
            done.add(first)
        assert await scaler.look() == 2, "two jobs are left, and both run"
        (gone,) = scaler.leaving
        assert gone.in_its_hands(), "it was told to end in the middle of its work"
        for file in files:
            file.touch()
        assert await gone.ended() == 0
        for job in jobs:
            assert (await at.ended(job)).state is State.COMPLETED
            assert len(await at.engine.attempts(job)) == 1, "no work was done twice"
        assert await scaler.look() == 0
        assert [await worker.ended() for worker in scaler.leaving] == [0] * LIMIT
        again = await at.world.submit("held", input={"file": str(files[0])})
        assert await scaler.look() == 1, "work wakes the first worker"
        assert (await at.ended(again)).state is State.COMPLETED
