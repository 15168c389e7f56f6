"""The worker registry: all workers, their last heartbeats, and which of them are draining."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from fairlane.engine.core import Core
from fairlane.engine.worker_retry_terms import refresh_declared
from fairlane.errors import NotFound
from fairlane.index.index import ModelSample
from fairlane.model.job import Job
from fairlane.model.worker import Loaded, Worker, WorkerState


class WorkerRegistry:
    def __init__(self, core: Core) -> None:
        self._core = core

    def new_id(self) -> str:
        return self._core.ids.new(self._core.now())

    async def register(self, worker: Worker) -> Worker:
        core = self._core
        for tier in worker.tiers or ():
            core.catalog.tiers.rank(tier)
        if worker.state is WorkerState.ACTIVE:
            core.draining.discard(worker.id)
        else:
            core.seen.pop(worker.id, None)
        await core.ledger.put_worker(worker, core.now())
        if worker.tasks:
            await refresh_declared(core)
        return worker

    async def keep_alive(self, workers: Iterable[Worker]) -> None:
        """Record a heartbeat of each of these workers."""
        core = self._core
        await asyncio.gather(*(core.ledger.put_worker(each, core.now()) for each in workers))

    async def heartbeat(self, name: str, state: WorkerState) -> Worker:
        """Record a heartbeat with this state. Returns the worker. Its state only moves forward,
        from active to draining to dead, until it registers again."""
        worker = await self._core.ledger.record_heartbeat(name, state, self._core.now())
        if worker is None:
            raise NotFound("worker", name)
        if worker.state is not WorkerState.ACTIVE:
            self._core.draining.add(name)
        if worker.state is WorkerState.DEAD:
            self._core.forget_worker(name)
        return worker

    async def drain(self, worker: Worker) -> Worker:
        """Drain a worker: it gets no new jobs."""
        self._core.draining.add(worker.id)
        await self.wake_claims(worker)
        return await self.register(replace(worker, state=WorkerState.DRAINING))

    async def wake_claims(self, worker: Worker) -> None:
        """Wake the waiting claims (long polls) of this worker, so that they check again at once."""
        await self._core.index.end_waits(worker.id)

    def is_draining(self, name: str) -> bool:
        """Whether this process knows that the worker takes no new jobs."""
        return name in self._core.draining

    async def has_loaded(
        self, worker: Worker, model: str, took: int, age: int | None = None, tasks: int = 0
    ) -> None:
        """Record that the worker has this model in memory. `took`: the load time in microseconds,
        if the model was just loaded, else 0. `age` (µs) and `tasks`: for how long, and for how many
        tasks in a row; a worker that says so may poll several processes in turn."""
        core = self._core
        if age is not None:
            core.loaded[worker.id] = Loaded(model, core.now() - age, tasks)
        elif core.loaded.get(worker.id, Loaded()).model != model:
            core.loaded[worker.id] = Loaded(model, core.now(), 0)
        if took and worker.services:
            await core.index.learn_times(
                [ModelSample(each, model, took) for each in worker.services]
            )

    async def get(self, name: str) -> Worker | None:
        return await self._core.ledger.worker(name)

    async def all(self) -> list[tuple[Worker, int]]:
        """Every worker with the time of its last heartbeat (µs)."""
        return await self._core.ledger.workers()

    async def running_jobs(self, worker: str | None = None) -> list[Job]:
        """Running jobs that this worker holds (None = any). Reads all running jobs."""
        return await self._core.ledger.held(worker)
