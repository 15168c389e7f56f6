"""Wake-ups over pub/sub: one channel per process, and a task that listens to it."""

from __future__ import annotations

import asyncio
import contextlib

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from fairlane.background import end
from fairlane.ids import token
from fairlane.index.redis.codec import plain
from fairlane.index.redis.script_client import ScriptClient

KEEPALIVE_SECONDS, ANSWER_WITHIN = 0.7, 1.0
"""Seconds until a listener that has heard nothing asks the server whether it is still there, and in
which it is answered."""

SAY_ALIVE = 4.0
"""Seconds after which a listener says again that its process is alive."""

PROCESS_TTL_MS = 15_000
"""Milliseconds after which a silent process counts as gone, and its idle workers with it. One whose
connection is closed counts as gone at once."""

RECONNECT_PAUSE_SECONDS = 0.2
"""Seconds between two tries to reach a server that is away."""

FIRST_LISTEN_SECONDS = 2.0
"""Seconds that the first worker waits until somebody listens for it."""


class Wakeups:
    def __init__(self, server: ScriptClient) -> None:
        self.process = token()
        self._server = server
        self._wakeups: dict[str, asyncio.Event] = {}
        self._listener: asyncio.Task[None] | None = None
        self._listened = asyncio.Event()

    async def hang(self, worker_id: str) -> None:
        """Listen for this worker from now on, before it is filed as idle."""
        self._wakeups[worker_id] = asyncio.Event()
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        if not self._listened.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LISTEN_SECONDS):
                    await self._listened.wait()

    def take_down(self, worker_id: str) -> bool:
        """Whether one was hanging."""
        return self._wakeups.pop(worker_id, None) is not None

    def get(self, worker_id: str) -> asyncio.Event | None:
        return self._wakeups.get(worker_id)

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        await end(listener)
        with contextlib.suppress(RedisError, OSError):
            await self._server.plain.delete(self._key("alive"))

    async def _listen(self) -> None:
        while True:
            try:
                async with self._server.listening.pubsub() as ears:
                    async with asyncio.timeout(ANSWER_WITHIN):
                        await ears.subscribe(self._key("bell"))
                    await self._hear(ears)
            except (RedisError, OSError, TimeoutError):
                await self._server.listen_anew()
                await asyncio.sleep(RECONNECT_PAUSE_SECONDS)

    async def _hear(self, ears: PubSub) -> None:
        """Until the server is away. What was rung before it listened, nobody has heard."""
        loop = asyncio.get_running_loop()
        said_at = loop.time() - SAY_ALIVE
        while True:
            said = await ears.get_message(timeout=KEEPALIVE_SECONDS)
            if said is None:
                await ears.ping()
                said = await ears.get_message(timeout=ANSWER_WITHIN)
                if said is None:
                    raise TimeoutError
            if said["type"] == "subscribe":
                self._begin()
            elif said["type"] == "message":
                self._ring(plain(said["data"]))
            if loop.time() - said_at >= SAY_ALIVE:
                await self._server.plain.set(self._key("alive"), "1", px=PROCESS_TTL_MS)
                said_at = loop.time()

    def _begin(self) -> None:
        for wakeup in self._wakeups.values() if self._listened.is_set() else ():
            wakeup.set()
        self._listened.set()

    def _ring(self, worker_id: str) -> None:
        wakeup = self._wakeups.get(worker_id)
        if wakeup is not None:
            wakeup.set()

    def _key(self, kind: str) -> str:
        return f"{self._server.prefix}{kind}:{self.process}"
