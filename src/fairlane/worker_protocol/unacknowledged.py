"""Unacknowledged tasks: leased to a worker whose long poll had waited, so that the connection may
be dead. The worker confirms with a heartbeat. Unconfirmed tasks go back to the queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from fairlane.background import end
from fairlane.engine import Engine
from fairlane.engine.settle import GivenBack
from fairlane.model.lease import Lease
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

CONFIRM_MICROSECONDS = 2 * SECOND
"""A worker has this long to confirm its new leases."""

CHECK_MICROSECONDS = SECOND // 2


class Handover(NamedTuple):
    at: int
    leases: tuple[Lease, ...]


class UnacknowledgedTasks:
    """Tracks leases until the worker confirms them. A released task was not started, so no attempt
    is counted."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[str, Handover] = {}
        self._any = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        await end(self._task)

    def add(self, worker: str, leases: Sequence[Lease]) -> None:
        self._waiting[worker] = Handover(self._engine.clock.now(), tuple(leases))
        self._any.set()

    def confirmed(self, worker: str) -> None:
        self._waiting.pop(worker, None)

    async def _run(self) -> None:
        while True:
            await self._any.wait()
            await self._engine.clock.sleep(CHECK_MICROSECONDS)
            try:
                await self._release_overdue()
            except Exception as error:  # noqa: BLE001 - the leases expire anyway
                log.warning("cannot give back what was not heard of: %r", error)
            if not self._waiting:
                self._any.clear()

    async def _release_overdue(self) -> None:
        """Releases leases that are overdue. A worker may have confirmed at another process, so its
        last heartbeat is read from the ledger."""
        engine = self._engine
        late = [
            who
            for who, it in self._waiting.items()
            if engine.clock.now() - it.at >= CONFIRM_MICROSECONDS
        ]
        due = {who: self._waiting.pop(who) for who in late}
        heard = {worker.id: at for worker, at in await engine.workers.all()} if due else {}
        for who, handover in due.items():
            if heard.get(who, 0) <= handover.at:
                log.info("%s does not say that it has heard of its tasks", who)
                await self._engine.settle([GivenBack(lease) for lease in handover.leases])
