"""The loads of balanced Celery queues, read from their lease store in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlane.config.settings import CeleryLoads
from fairlane.errors import StoreAway

if TYPE_CHECKING:
    from fairlane.celery.leases import Load
    from fairlane.celery.loads import LoadReader

METRIC = "fairlane_celery_queue_tasks"


class CeleryLoadSource:
    """Reads the loads if the settings say where they are. Redis is imported only then."""

    def __init__(self, settings: CeleryLoads) -> None:
        self._settings = settings
        self._reader: LoadReader | None = None

    @property
    def is_configured(self) -> bool:
        return self._settings.redis_url is not None

    async def read(self) -> dict[str, Load]:
        """Raises StoreAway if Redis does not answer."""
        if self._settings.redis_url is None:
            return {}
        if self._reader is None:
            from fairlane.celery.loads import LoadReader

            self._reader = LoadReader.at(self._settings.redis_url, self._settings.key_prefix)
        return await asyncio.to_thread(self._reader.read)

    async def counts(self) -> dict[str, tuple[int, int]] | None:
        """The pending and running tasks by queue; None if there are no balanced queues. Raises
        StoreAway."""
        if not self.is_configured:
            return None
        return {queue: (load.pending, load.running) for queue, load in (await self.read()).items()}

    async def gauges(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The loads as a metric; none while Redis does not answer."""
        if not self.is_configured:
            return {}
        try:
            loads = await self.read()
        except StoreAway:
            return {}
        return {
            METRIC: {
                (queue, state): count
                for queue, load in loads.items()
                for state, count in load._asdict().items()
            }
        }

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
