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
from fairlane.index.redis.line import Line, Word

CONNECTIONS = 2
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
        self._pages = Client(url, connections=CONNECTIONS, timeout=ANSWER_WITHIN)
        self._waits = Client(url, connections=1, timeout=None)
        self._calls = Client(url, connections=1, timeout=None)
        self._client, self.blocking = self._pages.redis, self._waits.redis
        self._line = Line(self._calls.redis.connection_pool, ANSWER_WITHIN)
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

    async def run(self, verb: str, *arguments: Word) -> Any:
        """What the verb answers, texts as bytes. Raises NotReady if the server is away: whether
        the verb was executed is not known then."""
        if self._closed:
            raise SetupError("the index is closed")
        self._running += 1
        try:
            return await self._run(verb, *arguments)
        except AWAY as error:
            if isinstance(error, exceptions.ReadOnlyError):
                await self._line.leave()
                await self._pages.leave()
                await self._waits.leave()
            raise NotReady("the index cannot be reached") from error
        finally:
            self._running -= 1
            if not self._running:
                self._quiet.set()

    async def _run(self, verb: str, *arguments: Word) -> Any:
        script = self._scripts[verb]
        try:
            return await self._line.ask("EVALSHA", script.sha, 1, self.prefix, *arguments)
        except exceptions.NoScriptError:  # nothing was executed
            return await self._line.ask("EVAL", script.source, 1, self.prefix, *arguments)

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
        await self._line.close()
        for client in (self._calls, self._pages, self._waits):
            await client.close()
