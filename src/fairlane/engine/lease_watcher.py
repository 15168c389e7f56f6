"""The lease watcher: notifies the holders of leases that are lost or cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from fairlane.engine.core import Core
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

LEASE_CHECK_MICROSECONDS = SECOND // 2
"""Time between two checks of the watched leases in the ledger. Changes that this process makes are
noticed at once. The check finds leases that another process has cancelled or taken back."""

MIN_CHECK_PAUSE_SECONDS = 0.02
"""Minimum seconds between two checks, however many changes this process makes."""

LeaseName = tuple[str, str]
"""Job and token."""


@dataclass(slots=True, eq=False)
class WatchedLeases:
    """The leases of one holder by token, and the callback for a lost lease. The holder may remove
    leases at any time."""

    leases: Mapping[str, LeaseName]
    lost: Callable[[], object]


class LeaseWatcher:
    """Notifies holders when one of their leases is lost. A ledger that does not answer does not end
    a lease. The watcher works while `run` runs."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._watched: set[WatchedLeases] = set()
        self._moved = asyncio.Event()
        self._any = asyncio.Event()

    @contextmanager
    def watching(
        self, leases: Mapping[str, LeaseName], lost: Callable[[], object]
    ) -> Iterator[None]:
        """Calls `lost`, perhaps more than once, when one of these leases is lost."""
        watched = WatchedLeases(leases, lost)
        with ExitStack() as stack:
            for job in {job for job, _ in leases.values()}:
                stack.enter_context(self._core.subscriptions.watching(job, self._moved))
            self._watched.add(watched)
            self._any.set()
            try:
                yield
            finally:
                self._watched.discard(watched)
                if not self._watched:
                    self._any.clear()

    async def run(self) -> None:
        """Run for ever: check the watched leases when one of their jobs changes, and twice a
        second."""
        clock = self._core.clock
        while True:
            await self._any.wait()
            await clock.wait(self._moved, LEASE_CHECK_MICROSECONDS)
            self._moved.clear()
            try:
                await self._check()
            except Exception as error:  # noqa: BLE001 - the watcher must go on
                log.warning("cannot check which leases still hold, trying again: %r", error)
                await clock.sleep(LEASE_CHECK_MICROSECONDS)
            await asyncio.sleep(MIN_CHECK_PAUSE_SECONDS)

    async def _check(self) -> None:
        asked = [(watched, list(watched.leases.values())) for watched in self._watched]
        names = [lease for _, leases in asked for lease in leases]
        holding = await self._core.ledger.holding(names) if names else frozenset()
        for watched, leases in asked:
            if any(token in watched.leases and token not in holding for _, token in leases):
                watched.lost()
