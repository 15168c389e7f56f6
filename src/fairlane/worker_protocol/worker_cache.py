"""The worker cache: registered workers, read from the ledger at most twice a second."""

from __future__ import annotations

from fairlane.engine import Engine
from fairlane.model.worker import Worker
from fairlane.units import SECOND

CACHE_MICROSECONDS = SECOND // 2
"""How long a cached worker is used, and the shortest time between two checks of its leases. A drain
at another process reaches the worker with its next heartbeat."""

MAX_CACHED_WORKERS = 10_000


class WorkerCache:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, tuple[Worker, int]] = {}
        self._checked_at: dict[str, int] = {}

    async def get(self, name: str) -> Worker | None:
        engine = self._engine
        known, at = self._known.get(name, (None, 0))
        if known is None or engine.clock.now() - at >= CACHE_MICROSECONDS:
            known = await engine.workers.get(name)
            if known is not None:
                self.note(known)
        return known

    def note(self, worker: Worker) -> None:
        """Caches the current state of the worker."""
        if len(self._known) >= MAX_CACHED_WORKERS:
            self._known.clear()
        self._known[worker.id] = (worker, self._engine.clock.now())

    def lease_check_due(self, name: str) -> bool:
        """Returns whether the worker's leases are due for a check, and records the check."""
        now = self._engine.clock.now()
        if now - self._checked_at.get(name, 0) < CACHE_MICROSECONDS:
            return False
        if len(self._checked_at) >= MAX_CACHED_WORKERS:
            self._checked_at.clear()
        self._checked_at[name] = now
        return True
