"""Wake-ups across processes: one list per process, and a task that waits at its end."""

from __future__ import annotations

import asyncio
import contextlib

from redis.exceptions import RedisError

from fairlane.ids import token
from fairlane.index.redis.server import Server
from fairlane.index.redis.texts import plain

LISTEN_FOR = 4.0
"""Seconds until a listener says again that its process is alive."""

ALIVE_FOR = 15_000
"""Milliseconds after which a silent process counts as gone, and its idle workers with it."""

REST = 0.2
"""Seconds between two tries to reach a server that is away."""


class Bells:
    def __init__(self, server: Server) -> None:
        self.process = token()
        self._server = server
        self._bells: dict[str, asyncio.Event] = {}
        self._listener: asyncio.Task[None] | None = None

    def hang(self, worker_id: str) -> None:
        """Listen for this worker from now on, before it is filed as idle."""
        self._bells[worker_id] = asyncio.Event()
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())

    def take_down(self, worker_id: str) -> bool:
        """Whether one was hanging."""
        return self._bells.pop(worker_id, None) is not None

    def get(self, worker_id: str) -> asyncio.Event | None:
        return self._bells.get(worker_id)

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener
        with contextlib.suppress(RedisError, OSError):
            await self._server.blocking.delete(self._key("alive"), self._key("bell"))

    async def _listen(self) -> None:
        while True:
            try:
                await self._server.blocking.set(self._key("alive"), "1", px=ALIVE_FOR)
                rung = await self._server.blocking.blpop([self._key("bell")], timeout=LISTEN_FOR)
            except (RedisError, OSError):
                await asyncio.sleep(REST)
                continue
            if rung is not None:
                self._ring(plain(rung[1]))

    def _ring(self, worker_id: str) -> None:
        bell = self._bells.get(worker_id)
        if bell is not None:
            bell.set()

    def _key(self, kind: str) -> str:
        return f"{self._server.prefix}{kind}:{self.process}"
