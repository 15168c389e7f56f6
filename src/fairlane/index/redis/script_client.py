"""The script client: runs Lua scripts by name (EVALSHA) and never retries a call."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from redis import exceptions

from fairlane.errors import NotReady, SetupError, StoreAway
from fairlane.index.index import IndexServer
from fairlane.index.redis import scripts
from fairlane.index.redis.connect import CONNECT_TIMEOUT_SECONDS, RedisConnection
from fairlane.index.redis.multiplexed_connection import MultiplexedConnection, Word
from fairlane.index.redis.server_state import server_of

log = logging.getLogger("fairlane")

T = TypeVar("T")

CONNECTIONS = 2
ANSWER_TIMEOUT_SECONDS = 2.0
"""A server that does not answer within this time is treated as unavailable. No script runs nearly
as long. Callers may repeat every script, so a wrong verdict costs only a short delay."""

SCAN_PAGE = 1_000

ELSEWHERE = (exceptions.AskError, exceptions.ClusterDownError, exceptions.TryAgainError)
"""Errors of a Redis Cluster whose keys move to another node. AskError includes MovedError."""

AWAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    *ELSEWHERE,
)
"""Errors after which the state of the index is unknown. ReadOnlyError: the server has become a
replica."""

FAILED_SCRIPT = "user_script"
"""The server's error text contains this if a script failed halfway. The scripts do not fail on data
that they wrote themselves, so another client has written or removed keys."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error)
"""Exceptions of decoding an answer that contains data no script has written."""

DAMAGED = "the index is damaged, it will be built anew"

FIRST_REBUILD_PAUSE, MAX_REBUILD_PAUSE = 1.0, 60.0
"""Seconds between two rebuilds because of damage: the pause doubles from the first value up to the
second. It starts again if the last build lasted ten times the pause."""


class ScriptClient:
    """Three kinds of connections: one multiplexed connection for scripts, `plain` for other
    commands, `listening` for pub/sub. `life` is the epoch of the index build in use."""

    def __init__(self, url: str, prefix: str) -> None:
        self.prefix, self.life = prefix, ""
        self._invalidated, self._invalidated_at, self._rebuild_pause = (
            "",
            float("-inf"),
            FIRST_REBUILD_PAUSE,
        )
        self._pages = RedisConnection(
            url, connections=CONNECTIONS, timeout=ANSWER_TIMEOUT_SECONDS, key=prefix
        )
        self._pubsub, self._calls = (
            RedisConnection(url, connections=1, timeout=CONNECT_TIMEOUT_SECONDS, key=prefix)
            for _ in range(2)
        )
        self.plain, self.listening = self._pages.redis, self._pubsub.redis
        self._commands = MultiplexedConnection(
            self._calls.redis.connection_pool, ANSWER_TIMEOUT_SECONDS
        )
        self._scripts = {name: scripts.load(name) for name in scripts.names()}
        self._running, self._closed, self._none_running = 0, False, asyncio.Event()

    async def check(self) -> None:
        """Raise SetupError if the server may evict keys, and load all scripts into it. Raises
        StoreAway if it cannot be reached."""
        try:
            await self._check()
        except exceptions.AuthenticationError as error:  # a kind of ConnectionError
            raise SetupError(f"Redis refuses: {error}") from error
        except (exceptions.ConnectionError, exceptions.TimeoutError, *ELSEWHERE) as error:
            raise StoreAway(f"cannot reach Redis: {error}") from error
        except exceptions.ResponseError as error:
            raise SetupError(f"Redis refuses: {error}") from error

    async def _check(self) -> None:
        policy = (await self.plain.info("memory")).get("maxmemory_policy")
        if policy not in (None, "noeviction"):
            raise SetupError(
                f'the Redis server may evict keys: its maxmemory-policy is "{policy}"; '
                'set it to "noeviction"'
            )
        for script in self._scripts.values():  # without keys a script only gets cached
            await self._commands.ask("EVAL", script.source, 0)

    async def server(self) -> IndexServer:
        """Read the server's state. Raises NotReady if it does not answer."""
        try:
            return await server_of(self.plain)
        except AWAY as error:
            raise NotReady("the index cannot be reached") from error

    async def run(self, name: str, *arguments: Word) -> Any:
        """Run a script and return its answer, strings as bytes. Raises NotReady if the server is
        unavailable or the index damaged: then it is unknown whether the script was executed."""
        if self._closed:
            raise SetupError("the index is closed")
        self._running += 1
        try:
            return await self._run(name, *arguments)
        except AWAY as error:
            if isinstance(error, (exceptions.ReadOnlyError, *ELSEWHERE)):
                await self._commands.leave()
                await self._pages.leave()
                await self._pubsub.leave(at_once=True)  # PUBLISH does not count them
            raise NotReady("the index cannot be reached") from error
        except exceptions.ResponseError as error:
            if FAILED_SCRIPT not in str(error):
                raise
            await self._invalidate(name, error)
            raise NotReady(DAMAGED) from error
        finally:
            self._running -= 1
            if not self._running:
                self._none_running.set()

    async def read(self, name: str, read: Callable[[], T]) -> T:
        """Decode an answer with `read`. Raises NotReady, and has the index rebuilt, if the answer
        cannot be decoded."""
        try:
            return read()
        except UNREADABLE as error:
            await self._invalidate(name, error)
            raise NotReady(DAMAGED) from error

    async def _run(self, name: str, *arguments: Word) -> Any:
        script = self._scripts[name]
        try:
            return await self._commands.ask("EVALSHA", script.sha, 1, self.prefix, *arguments)
        except exceptions.NoScriptError:  # nothing was executed
            return await self._commands.ask("EVAL", script.source, 1, self.prefix, *arguments)

    async def _invalidate(self, name: str, error: Exception) -> None:
        """Invalidate the present build of the index, so that it is rebuilt from the ledger. The
        backoff limits how often that happens if rebuilding does not help."""
        now = asyncio.get_running_loop().time()
        lasted = now - self._invalidated_at
        if self.life in ("", self._invalidated) or lasted < self._rebuild_pause:
            return
        log.error("the index is damaged and will be built anew: %s failed: %s", name, error)
        self._rebuild_pause = (
            FIRST_REBUILD_PAUSE
            if lasted > 10 * self._rebuild_pause
            else min(MAX_REBUILD_PAUSE, 2 * self._rebuild_pause)
        )
        self._invalidated, self._invalidated_at = self.life, now
        await self._run("invalidate", "" if name == "begin" else self.life)

    async def remove_other_builds(self) -> None:
        """Delete the keys of earlier builds. The script checks with every page which build is the
        present one: another rebuild may have started."""
        pattern = re.sub(r"([\\*?\[\]^])", r"\\\1", self.prefix) + "@*"
        cursor = 0
        while True:
            try:
                cursor, keys = await self.plain.scan(cursor, match=pattern, count=SCAN_PAGE)
            except AWAY as error:
                raise NotReady("the index cannot be reached") from error
            if keys:
                await self.run("remove", *keys)
            if cursor == 0:
                return

    async def reset_listeners(self) -> None:
        """Close the pub/sub connection and the idle connections, which may be dead."""
        await self._pubsub.leave()
        await self._pages.leave()

    async def close(self) -> None:
        """Wait for the running scripts and close all connections. New calls are refused."""
        self._closed = True
        if self._running:
            self._none_running.clear()
            await self._none_running.wait()
        await self._commands.close()
        for client in (self._calls, self._pages, self._pubsub):
            await client.close()
