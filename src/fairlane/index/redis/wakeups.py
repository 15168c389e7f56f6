"""Wake-ups over Redis pub/sub: for idle workers (one channel per process) and for listeners to jobs
(one channel per job). One task of the process listens to all of its channels."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from fairlane.background import end, end_all
from fairlane.ids import token
from fairlane.index.redis.codec import plain
from fairlane.index.redis.script_client import ScriptClient

KEEPALIVE_SECONDS, PING_TIMEOUT_SECONDS = 0.7, 1.0
"""Seconds without a message after which the listener pings the server, and seconds within which the
server must answer."""

RENEW_ALIVE_SECONDS = 4.0
"""Seconds between two renewals of the process's `alive` key."""

PROCESS_TTL_MS = 15_000
"""Milliseconds after which a process that does not renew its `alive` key is treated as dead, with
its idle workers. A process whose connection is closed is treated as dead at once."""

RECONNECT_PAUSE_SECONDS = 0.2
"""The pause between two attempts to reach an unavailable server."""

FIRST_LISTEN_SECONDS = 2.0
"""The longest time that the first worker waits for the subscription to start."""


class ChannelHandler(NamedTuple):
    """What a channel is listened to for: `subscribed` is called when the server has accepted the
    subscription, `received` with the sender and the text of each message of another process."""

    subscribed: Callable[[], None]
    received: Callable[[str], None]


class Wakeups:
    """The wake-up events of this process's idle workers, and its listeners to jobs. The worker
    channel is named `bell:` and the id of the process."""

    def __init__(self, server: ScriptClient) -> None:
        self.process = token()
        self._server = server
        self._wakeups: dict[str, asyncio.Event] = {}
        self._listener: asyncio.Task[None] | None = None
        self._listened = asyncio.Event()
        self._listeners: dict[str, ChannelHandler] = {}
        self._changed_channels: set[str] = set()
        self._channels_changed = asyncio.Event()

    async def register(self, worker_id: str) -> None:
        """Listen for wake-ups of this worker. Called before it is recorded as idle."""
        self._wakeups[worker_id] = asyncio.Event()
        self._start()
        if not self._listened.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LISTEN_SECONDS):
                    await self._listened.wait()

    def unregister(self, worker_id: str) -> bool:
        """Stop listening for this worker. Returns whether it was registered."""
        return self._wakeups.pop(worker_id, None) is not None

    def get(self, worker_id: str) -> asyncio.Event | None:
        return self._wakeups.get(worker_id)

    def subscribe(self, job: str, changed: Callable[[], None]) -> None:
        """Call `changed` when another process has changed the job, or may have."""
        self._change_listener("changed", job, ChannelHandler(changed, lambda _: changed()))
        self._start()

    def unsubscribe(self, job: str) -> None:
        self._change_listener("changed", job, None)

    def subscribe_output(self, job: str, received: Callable[[str], None]) -> None:
        """Call `received` with each message of streamed output from another process."""
        self._change_listener("output", job, ChannelHandler(lambda: None, received))
        self._start()

    def unsubscribe_output(self, job: str) -> None:
        self._change_listener("output", job, None)

    def _change_listener(self, kind: str, job: str, handler: ChannelHandler | None) -> None:
        channel = f"{self._server.prefix}{kind}:{job}"
        if handler is None:
            self._listeners.pop(channel, None)
        else:
            self._listeners[channel] = handler
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
                async with self._server.listening.pubsub() as pubsub:
                    async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                        self._changed_channels.clear()
                        await self._renew_listening_key()
                        await pubsub.subscribe(self._key("bell"), *self._listeners)
                    updating = asyncio.create_task(self._update_subscriptions(pubsub))
                    try:
                        await self._receive(pubsub, updating)
                    finally:
                        await end_all([updating])
            except (RedisError, OSError, TimeoutError):
                await self._server.reset_listeners()
                await asyncio.sleep(RECONNECT_PAUSE_SECONDS)

    async def _update_subscriptions(self, pubsub: PubSub) -> None:
        """Keep the subscriptions in step with the listeners to jobs."""
        while True:
            await self._channels_changed.wait()
            self._channels_changed.clear()
            changed, self._changed_channels = self._changed_channels, set()
            begun = changed & self._listeners.keys()
            if begun:
                await self._renew_listening_key()
                await pubsub.subscribe(*begun)
            if ended := changed - begun:
                await pubsub.unsubscribe(*ended)

    async def _receive(self, pubsub: PubSub, updating: asyncio.Task[None]) -> None:
        """Receive messages until the server is unavailable."""
        loop = asyncio.get_running_loop()
        renewed_at = loop.time() - RENEW_ALIVE_SECONDS
        while not updating.done():
            message = await pubsub.get_message(timeout=KEEPALIVE_SECONDS)
            if message is None:
                await pubsub.ping()
                message = await pubsub.get_message(timeout=PING_TIMEOUT_SECONDS)
                if message is None:
                    raise TimeoutError
            if message["type"] == "subscribe":
                self._subscribed(plain(message["channel"]))
            elif message["type"] == "message":
                self._deliver(plain(message["channel"]), plain(message["data"]))
            if loop.time() - renewed_at >= RENEW_ALIVE_SECONDS:
                await self._server.plain.set(self._key("alive"), "1", px=PROCESS_TTL_MS)
                await self._renew_listening_key()
                renewed_at = loop.time()
        updating.result()

    async def _renew_listening_key(self) -> None:
        """Renew the `listening` key. Without it no process publishes changes of jobs."""
        if self._listeners:
            await self._server.plain.set(f"{self._server.prefix}listening", "1", px=PROCESS_TTL_MS)

    def _subscribed(self, channel: str) -> None:
        """The server has accepted a subscription. Earlier messages may be lost, so all of its
        listeners are woken."""
        if channel in self._listeners:
            self._listeners[channel].subscribed()
        elif channel == self._key("bell"):
            for wakeup in self._wakeups.values() if self._listened.is_set() else ():
                wakeup.set()
            self._listened.set()

    def _deliver(self, channel: str, text: str) -> None:
        """Deliver a message. `text` is the worker to wake, or the sending process and, after a
        space, what it has sent. Messages of this process are ignored: its own listeners know
        already."""
        if channel == self._key("bell"):
            wakeup = self._wakeups.get(text)
            if wakeup is not None:
                wakeup.set()
        elif channel in self._listeners:
            sender, _, sent = text.partition(" ")
            if sender != self.process:
                self._listeners[channel].received(sent)

    def _key(self, kind: str) -> str:
        return f"{self._server.prefix}{kind}:{self.process}"
