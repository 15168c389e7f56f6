"""The script client: runs Lua scripts by name, each exactly once."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from redis import exceptions

from fairlane.errors import NotReady, SetupError, StoreAway
from fairlane.index.redis import scripts
from fairlane.index.redis.connect import CONNECT_TIMEOUT_SECONDS, RedisConnection
from fairlane.index.redis.multiplexed_connection import MultiplexedConnection, Word

log = logging.getLogger("fairlane")

T = TypeVar("T")

CONNECTIONS = 2
ANSWER_TIMEOUT_SECONDS = 2.0
"""Seconds after which a server that says nothing counts as gone. No script works for nearly as
long, and every verb may be repeated: a mistake costs a moment."""

SCAN_PAGE = 1_000

AWAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
)
"""Nobody can say what the index knows. A server that has become a replica is left, too."""

SCRIPT = "user_script"
"""What the server calls a script that failed in the middle. The scripts get on with whatever they
have written themselves: somebody else has, or has removed something."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error)
"""What reading an answer raises if it holds what no script has written."""

DAMAGED = "the index is damaged, it will be built anew"

SOONEST, LATEST = 1.0, 60.0
"""Seconds between two lives that are condemned: twice as many each time, unless the last one lasted
ten times as long."""


class ScriptClient:
    def __init__(self, url: str, prefix: str) -> None:
        self.prefix, self.life = prefix, ""
        self._condemned, self._condemned_at, self._pause = "", float("-inf"), SOONEST
        self._pages = RedisConnection(url, connections=CONNECTIONS, timeout=ANSWER_TIMEOUT_SECONDS)
        self._waits = RedisConnection(url, connections=1, timeout=CONNECT_TIMEOUT_SECONDS)
        self._calls = RedisConnection(url, connections=1, timeout=CONNECT_TIMEOUT_SECONDS)
        self.plain, self.listening = self._pages.redis, self._waits.redis
        self._line = MultiplexedConnection(
            self._calls.redis.connection_pool, ANSWER_TIMEOUT_SECONDS
        )
        self._scripts = {name: scripts.load(name) for name in scripts.names()}
        self._running, self._closed, self._quiet = 0, False, asyncio.Event()

    async def check(self) -> None:
        """Refuse a server that may throw away what it was given, and teach it the verbs. Raises
        StoreAway if it cannot be reached."""
        try:
            await self._check()
        except (exceptions.AuthenticationError, exceptions.ResponseError) as error:
            raise SetupError(f"Redis refuses: {error}") from error
        except AWAY as error:
            raise StoreAway(f"cannot reach Redis: {error}") from error

    async def _check(self) -> None:
        policy = (await self.plain.info("memory")).get("maxmemory_policy")
        if policy not in (None, "noeviction"):
            raise SetupError(
                f'the Redis server may evict keys: its maxmemory-policy is "{policy}"; '
                'set it to "noeviction"'
            )
        for script in self._scripts.values():  # run without keys, they are only remembered
            await self._line.ask("EVAL", script.source, 0)

    async def run(self, verb: str, *arguments: Word) -> Any:
        """What the verb answers, texts as bytes. Raises NotReady if the server is away, or the
        index damaged: whether the verb was executed is not known then."""
        if self._closed:
            raise SetupError("the index is closed")
        self._running += 1
        try:
            return await self._run(verb, *arguments)
        except AWAY as error:
            if isinstance(error, exceptions.ReadOnlyError):
                await self._line.leave()
                await self._pages.leave()
                await self._waits.leave(at_once=True)  # a replica's listeners are not counted
            raise NotReady("the index cannot be reached") from error
        except exceptions.ResponseError as error:
            if SCRIPT not in str(error):
                raise
            await self._condemn(verb, error)
            raise NotReady(DAMAGED) from error
        finally:
            self._running -= 1
            if not self._running:
                self._quiet.set()

    async def read(self, verb: str, read: Callable[[], T]) -> T:
        """What this reads in the verb's answer. Raises NotReady if that is nothing of ours."""
        try:
            return read()
        except UNREADABLE as error:
            await self._condemn(verb, error)
            raise NotReady(DAMAGED) from error

    async def _run(self, verb: str, *arguments: Word) -> Any:
        script = self._scripts[verb]
        try:
            return await self._line.ask("EVALSHA", script.sha, 1, self.prefix, *arguments)
        except exceptions.NoScriptError:  # nothing was executed
            return await self._line.ask("EVAL", script.source, 1, self.prefix, *arguments)

    async def _condemn(self, verb: str, error: Exception) -> None:
        """End the life that this process knows, so that it is built anew; but not for ever again,
        if that does not help."""
        now = asyncio.get_running_loop().time()
        lasted = now - self._condemned_at
        if self.life in ("", self._condemned) or lasted < self._pause:
            return
        log.error("the index is damaged and will be built anew: %s failed: %s", verb, error)
        self._pause = SOONEST if lasted > 10 * self._pause else min(LATEST, 2 * self._pause)
        self._condemned, self._condemned_at = self.life, now
        await self._run("condemn", "" if verb == "begin" else self.life)

    async def remove_other_lives(self) -> None:
        """Remove what rebuilds have left behind. Which life is the present one is asked anew with
        every page: another one may have begun meanwhile."""
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

    async def listen_anew(self) -> None:
        """The connection that waits may lead nowhere, and so may those that rest."""
        await self._waits.leave()
        await self._pages.leave()

    async def close(self) -> None:
        """Verbs under way are waited for; nothing after them is accepted."""
        self._closed = True
        if self._running:
            self._quiet.clear()
            await self._quiet.wait()
        await self._line.close()
        for client in (self._calls, self._pages, self._waits):
            await client.close()
