"""The client of a demo's users: every request is repeated until a server answers it."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import aiohttp

TIMEOUT_SECONDS = 10
RETRY_PAUSE_SECONDS = 0.2
"""Seconds before a request without a response is repeated."""


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]


class DemoClient:
    """Idempotency keys make it safe to repeat a request, also at another URL."""

    def __init__(self, session: aiohttp.ClientSession, urls: Sequence[str]) -> None:
        self._session, self._urls = session, urls
        self._chance = random.Random(3)

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        headers = {"Idempotency-Key": uuid.uuid4().hex} if method in {"POST", "DELETE"} else {}
        while True:
            for url in self._chance.sample(self._urls, len(self._urls)):
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with self._session.request(
                        method, url + path, json=body, headers=headers
                    ) as response:
                        if response.status < 500:
                            return Answer(response.status, await response.json())
            await asyncio.sleep(RETRY_PAUSE_SECONDS)


@asynccontextmanager
async def connected(urls: Sequence[str]) -> AsyncIterator[DemoClient]:
    timeout = aiohttp.ClientTimeout(TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield DemoClient(session, urls)
