"""Lease renewal: leases are identified by job and fencing token."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from fairlane.engine.core import Core
from fairlane.engine.lease_watcher import LeaseName, LeaseWatcher
from fairlane.ledger.messages import Renewal, Stale
from fairlane.model.lease import Lease


class Leases:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def get(self, job: str, token: str) -> Lease | Stale:
        """The lease as it was handed out."""
        return await self._core.ledger.lease(job, token)

    async def renew(self, leases: Sequence[LeaseName], until: int) -> Renewal:
        """Extend every valid lease until this time (µs). Returns which leases are lost or
        cancelled."""
        if not leases:
            return Renewal([], [])
        began = perf_counter()
        renewal = await self._core.ledger.renew(leases, until, self._core.now())
        self._core.instrumentation.renewed(perf_counter() - began)
        return renewal

    async def move_start(self, lease: Lease, at: int) -> Lease | Stale:
        """Count the time of this attempt from `at` (µs) on: it was sent earlier, and a worker of
        another queue has only now begun it."""
        return await self._core.ledger.move_start(lease.job, lease.token, at)

    async def holding(self, leases: Sequence[LeaseName]) -> frozenset[str]:
        """The tokens of those leases that are still valid. Only reads: cheap enough to call twice a
        second."""
        return await self._core.ledger.holding(leases) if leases else frozenset()

    def watcher(self) -> LeaseWatcher:
        return LeaseWatcher(self._core)
