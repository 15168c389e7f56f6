"""The leases that a dispatcher holds: renewed together, and dropped when the ledger says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlane.engine import Engine
from fairlane.model.lease import Lease
from fairlane.model.worker import Worker
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

LEASE_CHECK_MICROSECONDS = SECOND // 2
"""How often the dispatcher checks with the ledger which leases are valid. Changes in this process
are known at once; this check finds leases that another process cancelled or took back."""

RENEW_RETRY_MICROSECONDS = SECOND
"""The pause after a renewal that did not reach the ledger."""


class HeldLeases:
    """Every lease with the task that works under it. A task whose lease is gone is cancelled. A
    ledger that does not answer cancels nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._leases: dict[str, tuple[Lease, asyncio.Task[object]]] = {}
        self._news = asyncio.Event()
        self._any = asyncio.Event()

    @contextmanager
    def holding(self, lease: Lease, task: asyncio.Task[object]) -> Iterator[None]:
        with self._engine.core.subscriptions.watching(lease.job, self._news):
            self._leases[lease.token] = (lease, task)
            self._any.set()
            try:
                yield
            finally:
                del self._leases[lease.token]
                if not self._leases:
                    self._any.clear()

    async def renew(self, workers: Callable[[], list[Worker]]) -> None:
        """Renews all leases and reports all workers alive every third of a lease, for ever."""
        core = self._engine.core
        heartbeat, lasts = workers()[0].heartbeat, workers()[0].lease
        while True:
            try:
                alive = [core.ledger.put_worker(each, core.now()) for each in workers()]
                await asyncio.gather(*alive)
                leases = [lease for lease, _ in self._leases.values()]
                await self._engine.renew(leases, core.now() + lasts)
            except Exception as error:  # noqa: BLE001 - whatever it is, the calls go on
                log.warning("leases not renewed, trying again: %r", error)
                await core.clock.sleep(min(heartbeat, RENEW_RETRY_MICROSECONDS))
            else:
                await core.clock.sleep(heartbeat)

    async def watch(self) -> None:
        """Cancels tasks whose leases are gone, for ever."""
        clock = self._engine.core.clock
        while True:
            await self._any.wait()
            await clock.wait(self._news, LEASE_CHECK_MICROSECONDS)
            self._news.clear()
            try:
                await self._let_go()
            except Exception as error:  # noqa: BLE001 - whatever it is, the calls go on
                log.warning("cannot look after leases, trying again: %r", error)
                await clock.sleep(LEASE_CHECK_MICROSECONDS)

    async def _let_go(self) -> None:
        asked = list(self._leases.values())
        still = await self._engine.holding([lease for lease, _ in asked])
        for lease, task in asked:
            if lease.token not in still:
                task.cancel()
