"""Open connections of inferences in this process: how many wait for each job, and the cancel of a
job whose last client has gone away."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Receive

from fairlane.engine import Engine
from fairlane.errors import Conflict, Expired, NotFound

log = logging.getLogger("fairlane.api")

RETRY_PAUSE_SECONDS = 0.5
"""Seconds until a cancel that a store did not take is tried again."""


class InferenceConnections:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: Counter[str] = Counter()
        self._cancelling: set[asyncio.Task[None]] = set()
        self.closing = False

    def __len__(self) -> int:
        return self._waiting.total()

    @contextmanager
    def waiting(self, job: str) -> Iterator[None]:
        self._waiting[job] += 1
        try:
            yield
        finally:
            self._waiting[job] -= 1
            if not self._waiting[job]:
                del self._waiting[job]

    def end_all(self) -> None:
        """Ends the waits. Their jobs are kept, and clients may ask another process."""
        self.closing = True
        self._engine.wake(self._waiting)

    async def stop(self) -> None:
        self.end_all()
        for task in self._cancelling:
            task.cancel()
        await asyncio.gather(*self._cancelling, return_exceptions=True)

    def client_left(self, job: str, tenant: str) -> None:
        """Cancels the job in the background, unless another client of this process waits for it."""
        if not self._waiting[job] and not self.closing:
            task = asyncio.create_task(self._cancel(job, tenant))
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)

    async def _cancel(self, job: str, tenant: str) -> None:
        while True:
            try:
                await self._engine.cancel(job, tenant, op="client left")
            except (Conflict, Expired, NotFound):  # it has ended
                return
            except Exception as error:  # noqa: BLE001 - a store is away: it will be back
                log.warning("%s is not cancelled, trying again: %r", job, error)
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
            else:
                return


async def client_gone(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
