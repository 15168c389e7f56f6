"""Wake-ups over pub/sub, of workers (one channel per process) and of listeners to jobs (one channel
per job). One task of the process listens to all of its channels."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from fairlane.background import end, end_all
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
        self._listeners: dict[str, Callable[[], None]] = {}
        self._changed_channels: set[str] = set()
        self._channels_changed = asyncio.Event()

    async def hang(self, worker_id: str) -> None:
        """Listen for this worker from now on, before it is filed as idle."""
        self._wakeups[worker_id] = asyncio.Event()
        self._start()
        if not self._listened.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LISTEN_SECONDS):
                    await self._listened.wait()

    def take_down(self, worker_id: str) -> bool:
        """Whether one was hanging."""
        return self._wakeups.pop(worker_id, None) is not None

    def get(self, worker_id: str) -> asyncio.Event | None:
        return self._wakeups.get(worker_id)

    def subscribe(self, job: str, changed: Callable[[], None]) -> None:
        """Call this when another process has changed the job, or may have."""
        self._change_listener(job, changed)
        self._start()

    def unsubscribe(self, job: str) -> None:
        self._change_listener(job, None)

    def _change_listener(self, job: str, changed: Callable[[], None] | None) -> None:
        channel = f"{self._server.prefix}changed:{job}"
        if changed is None:
            self._listeners.pop(channel, None)
        else:
            self._listeners[channel] = changed
        self._changed_channels.add(channel)
        self._channels_changed.set()

    def _start(self) -> None:
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())

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
                        self._changed_channels.clear()
                        await self._say_listening()
                        await ears.subscribe(self._key("bell"), *self._listeners)
                    asking = asyncio.create_task(self._ask(ears))
                    try:
                        await self._hear(ears, asking)
                    finally:
                        await end_all([asking])
            except (RedisError, OSError, TimeoutError):
                await self._server.listen_anew()
                await asyncio.sleep(RECONNECT_PAUSE_SECONDS)

    async def _ask(self, ears: PubSub) -> None:
        """Subscribe to the channels of jobs and unsubscribe from them, as listeners come and go."""
        while True:
            await self._channels_changed.wait()
            self._channels_changed.clear()
            changed, self._changed_channels = self._changed_channels, set()
            begun = changed & self._listeners.keys()
            if begun:
                await self._say_listening()
                await ears.subscribe(*begun)
            if ended := changed - begun:
                await ears.unsubscribe(*ended)

    async def _hear(self, ears: PubSub, asking: asyncio.Task[None]) -> None:
        """Until the server is away. What was rung before it listened, nobody has heard."""
        loop = asyncio.get_running_loop()
        said_at = loop.time() - SAY_ALIVE
        while not asking.done():
            said = await ears.get_message(timeout=KEEPALIVE_SECONDS)
            if said is None:
                await ears.ping()
                said = await ears.get_message(timeout=ANSWER_WITHIN)
                if said is None:
                    raise TimeoutError
            if said["type"] == "subscribe":
                self._begin(plain(said["channel"]))
            elif said["type"] == "message":
                self._ring(plain(said["channel"]), plain(said["data"]))
            if loop.time() - said_at >= SAY_ALIVE:
                await self._server.plain.set(self._key("alive"), "1", px=PROCESS_TTL_MS)
                await self._say_listening()
                said_at = loop.time()
        asking.result()

    async def _say_listening(self) -> None:
        """Without this key no process sends messages to listeners."""
        if self._listeners:
            await self._server.plain.set(f"{self._server.prefix}listening", "1", px=PROCESS_TTL_MS)

    def _begin(self, channel: str) -> None:
        """The server has accepted the subscription; earlier messages were not heard."""
        if channel in self._listeners:
            self._listeners[channel]()
        elif channel == self._key("bell"):
            for wakeup in self._wakeups.values() if self._listened.is_set() else ():
                wakeup.set()
            self._listened.set()

    def _ring(self, channel: str, text: str) -> None:
        """`text` is the worker to wake, or the process that has changed a job. This process has
        woken its own listeners already."""
        if channel == self._key("bell"):
            wakeup = self._wakeups.get(text)
            if wakeup is not None:
                wakeup.set()
        elif channel in self._listeners and text != self.process:
            self._listeners[channel]()

    def _key(self, kind: str) -> str:
        return f"{self._server.prefix}{kind}:{self.process}"
