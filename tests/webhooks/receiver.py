"""Somebody who is told how jobs end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import orjson
from aiohttp import web


class Heard(NamedTuple):
    id: str
    type: str
    data: dict[str, Any]
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Somebody with a callback URL."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.status = 200
        self.location = ""
        self.url, self.port = "", 0
        self._news = asyncio.Condition()

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
        app = web.Application()
        app.router.add_post("/{any:.*}", self._hear)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _hear(self, request: web.Request) -> web.Response:
        body = await request.read()
        said = orjson.loads(body)
        headers = dict(request.headers)
        async with self._news:
            self.heard.append(
                Heard(headers["webhook-id"], said["type"], said["data"], headers, body)
            )
            self._news.notify_all()
        headers = {"Location": self.location} if self.location else {}
        return web.Response(status=self.status, headers=headers)

    async def hears(self, n: int) -> list[Heard]:
        async with self._news:
            await self._news.wait_for(lambda: len(self.heard) >= n)
        return self.heard
