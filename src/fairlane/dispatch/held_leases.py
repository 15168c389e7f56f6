"""The leases that a dispatcher holds: renewed together, and dropped when the ledger says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlane.dispatch.call import Call
from fairlane.engine import Engine
from fairlane.model.worker import Worker
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

RENEW_RETRY_MICROSECONDS = SECOND
"""The pause after a renewal that did not reach the ledger."""


class HeldLeases:
    """Every call under a lease, with the task that makes it. A task whose lease is gone is
    cancelled. A ledger that does not answer cancels nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calls: dict[str, Call] = {}
        self._watcher = engine.leases.watcher()

    @contextmanager
    def holding(self, call: Call, task: asyncio.Task[object]) -> Iterator[None]:
        lease = call.lease
        self._calls[lease.token] = call
        try:
            with self._watcher.watching({lease.token: (lease.job, lease.token)}, task.cancel):
                yield
        finally:
            del self._calls[lease.token]

    async def renew(self, workers: Callable[[], list[Worker]]) -> None:
        """Renews all leases and reports all workers alive every third of a lease, for ever."""
        engine = self._engine
        heartbeat, lasts = workers()[0].heartbeat, workers()[0].lease
        while True:
            try:
                await engine.workers.keep_alive(workers())
                await self._renew_calls(engine.clock.now() + lasts)
            except Exception as error:  # noqa: BLE001 - whatever it is, the calls go on
                log.warning("leases not renewed, trying again: %r", error)
                await engine.clock.sleep(min(heartbeat, RENEW_RETRY_MICROSECONDS))
            else:
                await engine.clock.sleep(heartbeat)

    async def _renew_calls(self, until: int) -> None:
        calls = [*self._calls.values()]
        lost, cancelled = await self._engine.renew([call.lease for call in calls], until)
        for call in calls:
            if call.lease.job not in (*lost, *cancelled):
                call.lease_until = min(until, call.lease.deadline)

    async def watch(self) -> None:
        """Cancels tasks whose leases are gone, for ever."""
        await self._watcher.run()
