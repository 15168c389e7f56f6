"""The connection to the server: verbs are run by name, each exactly once.

A call whose answer was lost may have been executed. It is never repeated here; every verb is
harmless when a caller repeats it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from redis import exceptions

from fairlane.errors import NotReady, SetupError
from fairlane.index.redis import scripts
from fairlane.index.redis.connect import Client

CONNECTIONS = 16
ANSWER_WITHIN = 30.0
"""Seconds after which a server that does not answer counts as gone."""

A_PAGE = 1_000

AWAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
)
"""Nobody can say what the index knows. A server that has become a replica is left, too."""


class Server:
    def __init__(self, url: str, prefix: str) -> None:
        self.prefix = prefix
        self._calls = Client(url, connections=CONNECTIONS, timeout=ANSWER_WITHIN)
        self._waits = Client(url, connections=1, timeout=None)
        self._client, self.blocking = self._calls.redis, self._waits.redis
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._scripts = {name: scripts.load(name) for name in scripts.names()}
        self._running, self._closed, self._quiet = 0, False, asyncio.Event()

    async def check(self) -> None:
        """Refuse a server that may throw away what it was given."""
        policy = (await self._client.info("memory")).get("maxmemory_policy")
        if policy not in (None, "noeviction"):
            raise SetupError(
                f'the Redis server may evict keys: its maxmemory-policy is "{policy}"; '
                'set it to "noeviction"'
            )

    async def run(self, verb: str, *arguments: str | int | bytes) -> Any:
        """What the verb answers, texts as bytes. Raises NotReady if the server is away: whether
        the verb was executed is not known then."""
        if self._closed:
            raise SetupError("the index is closed")
        self._running += 1
        try:
            async with self._turns:
                return await self._run(verb, *arguments)
        except AWAY as error:
            if isinstance(error, exceptions.ReadOnlyError):
                await self._calls.leave()
                await self._waits.leave()
            raise NotReady("the index cannot be reached") from error
        finally:
            self._running -= 1
            if not self._running:
                self._quiet.set()

    async def _run(self, verb: str, *arguments: str | int | bytes) -> Any:
        script = self._scripts[verb]
        try:
            return await self._client.evalsha(script.sha, 1, self.prefix, *arguments)
        except exceptions.NoScriptError:  # nothing was executed
            return await self._client.eval(script.source, 1, self.prefix, *arguments)

    async def remove_other_lives(self) -> None:
        """Remove what rebuilds have left behind. Which life is the present one is asked anew with
        every page: another one may have begun meanwhile."""
        pattern = re.sub(r"([\\*?\[\]^])", r"\\\1", self.prefix) + "@*"
        cursor = 0
        while True:
            cursor, keys = await self._client.scan(cursor, match=pattern, count=A_PAGE)
            if keys:
                await self.run("remove", *keys)
            if cursor == 0:
                return

    async def close(self) -> None:
        """Verbs under way are waited for; nothing after them is accepted."""
        self._closed = True
        if self._running:
            self._quiet.clear()
            await self._quiet.wait()
        await self._calls.close()
        await self._waits.close()
