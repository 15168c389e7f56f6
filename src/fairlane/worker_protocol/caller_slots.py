"""Caller-held slots: leases on the capacity of a service that its callers run themselves
(`executor = "caller"`)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import NamedTuple

from fairlane.background import end
from fairlane.engine import Engine
from fairlane.engine.settle import Done
from fairlane.errors import InvalidInput, NotFound, StaleLease
from fairlane.ids import token
from fairlane.ledger.messages import Stale
from fairlane.model.job import Job
from fairlane.model.service import Executor
from fairlane.model.state import State
from fairlane.model.worker import Worker

log = logging.getLogger("fairlane")

CLAIM_WAIT_SECONDS = 4.0
"""How long one claim waits before this process registers again as a worker. A new slot wakes it
earlier."""

RETRY_PAUSE_SECONDS = 0.2


class HeldSlot(NamedTuple):
    """A slot and its lease token. The token is None while the slot is queued."""

    job: Job
    lease: str | None


class CallerSlots:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker = Worker(f"slots-{token()[:8]}", capacity=1_000)
        self._waiting = 0
        self._any = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def lease(self) -> int:
        """The duration of a slot's lease, in microseconds."""
        return self._worker.lease

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        await end(self._task)

    def check(self, service: str) -> None:
        """Raises InvalidInput if the executor of the service is not `caller`."""
        if self._engine.catalog.service(service).executor is not Executor.CALLER:
            raise InvalidInput(
                f'callers hold no slots of "{service}"; its executor is not "caller"'
            )

    async def wait(self, job_id: str, tenant: str, wait: float) -> HeldSlot:
        """Returns the slot when the caller holds it, or its state after `wait` seconds."""
        engine = self._engine
        until = engine.clock.now() + round(wait * 1_000_000)
        job = await self._own(job_id, tenant)
        self._waiting += 1
        self._any.set()
        try:
            looks = engine.follow(
                job_id, lambda wakeup: engine.clock.wait(wakeup, until - engine.clock.now())
            )
            async with aclosing(looks):
                async for seen in looks:
                    job = seen or await self._own(job_id, tenant)
                    if job.state is not State.QUEUED or engine.clock.now() >= until:
                        break
            return HeldSlot(job, job.token)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._any.clear()

    async def renew(self, job_id: str, tenant: str, lease: str) -> None:
        job, engine = await self._own(job_id, tenant), self._engine
        until = engine.clock.now() + self._worker.lease
        lost, gone = await engine.leases.renew([(job_id, lease)], until)
        if lost or gone:
            raise StaleLease(job_id, job.state)

    async def release(self, job_id: str, tenant: str, lease: str) -> None:
        await self._own(job_id, tenant)
        found = await self._engine.leases.get(job_id, lease)
        if isinstance(found, Stale):
            raise StaleLease(job_id, found.state or "gone")
        (outcome,) = await self._engine.settle([Done(found)])
        if isinstance(outcome, Stale):
            raise StaleLease(job_id, outcome.state or "gone")

    async def _own(self, job_id: str, tenant: str) -> Job:
        job = await self._engine.get(job_id, tenant)
        if job.current.executor is not Executor.CALLER:
            raise NotFound("slot", job_id)
        return job

    # --- claims ------------------------------------------------------------------------------
    async def _run(self) -> None:
        """Claims slots while a caller waits in this process. A claimed slot may belong to a caller
        in another process, which reads it from the ledger."""
        engine = self._engine
        while True:
            await self._any.wait()
            try:
                services = engine.catalog.services.values()
                own = {each.name for each in services if each.executor is Executor.CALLER}
                worker = Worker(self._worker.id, services=frozenset(own), capacity=1_000)
                await engine.register(worker)
                await engine.claim(worker, max(1, self._waiting), wait=CLAIM_WAIT_SECONDS)
            except Exception as error:  # noqa: BLE001 - a store is unavailable: retry
                log.warning("no slots are handed out, trying again: %r", error)
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
