"""The worker registry: which workers there are, when each was last heard of, and which drain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from fairlane.engine.core import Core
from fairlane.engine.worker_retry_terms import refresh_declared
from fairlane.errors import NotFound
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
        """These workers live."""
        core = self._core
        await asyncio.gather(*(core.ledger.put_worker(each, core.now()) for each in workers))

    async def hear(self, name: str, state: WorkerState) -> Worker:
        """The worker as it is, heard of now: its state goes only onward, from active over draining
        to dead, until it is registered anew."""
        worker = await self._core.ledger.hear(name, state, self._core.now())
        if worker is None:
            raise NotFound("worker", name)
        if worker.state is not WorkerState.ACTIVE:
            self._core.draining.add(name)
        if worker.state is WorkerState.DEAD:
            self._core.forget_worker(name)
        return worker

    async def drain(self, worker: Worker) -> Worker:
        """No new work for it."""
        self._core.draining.add(worker.id)
        await self.rouse(worker)
        return await self.register(replace(worker, state=WorkerState.DRAINING))

    async def rouse(self, worker: Worker) -> None:
        """Its waiting claims look again: something will be due sooner than they know."""
        await self._core.index.dismiss(worker.id)

    def is_draining(self, name: str) -> bool:
        """Whether this process knows that the worker takes no more work."""
        return name in self._core.draining

    async def has_loaded(self, worker: Worker, model: str, took: int) -> None:
        """The worker has this model in memory. `took`: the microseconds it took to load it, if it
        was just loaded."""
        core = self._core
        if core.loaded.get(worker.id, Loaded()).model != model:
            core.loaded[worker.id] = Loaded(model, core.now(), 0)
        for service in worker.services or () if took else ():
            await core.index.learn_load(service, model, took)

    async def get(self, name: str) -> Worker | None:
        return await self._core.ledger.worker(name)

    async def all(self) -> list[tuple[Worker, int]]:
        """Every worker and when it was last heard of."""
        return await self._core.ledger.workers()

    async def running_jobs(self, worker: str | None = None) -> list[Job]:
        """Running jobs that this worker holds (None = any). Looks through all that run."""
        return await self._core.ledger.held(worker)
