"""The event publisher over Redis pub/sub: tells listeners in other processes which jobs this
process has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from fairlane.errors import NotReady
from fairlane.index.redis.script_client import ScriptClient

PUBLISH_PERIOD_SECONDS = 0.02
"""The shortest time between two calls of a process. Changes in between are sent together, so a
process that changes thousands of jobs a second makes 50 calls a second."""


class EventPublisher:
    """The first change is sent at once. Messages that are lost are not sent again: listeners also
    compare with the ledger."""

    def __init__(self, server: ScriptClient, process: str) -> None:
        self._server, self._process = server, process
        self._changed: set[str] = set()
        self._sending: asyncio.Task[None] | None = None
        self._next: asyncio.TimerHandle | None = None

    def publish(self, jobs: Iterable[str]) -> None:
        self._changed.update(jobs)
        if self._changed and self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def close(self) -> None:
        """Send all pending changes."""
        while self._sending is not None:
            await asyncio.wait([self._sending])
            self._send_next()

    async def _send(self) -> None:
        changed, self._changed = self._changed, set()
        try:
            with suppress(NotReady):
                await self._server.run("notify", self._process, " ".join(changed))
        finally:
            loop = asyncio.get_running_loop()
            self._next = loop.call_later(PUBLISH_PERIOD_SECONDS, self._send_next)

    def _send_next(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._sending = None
        self.publish(())
