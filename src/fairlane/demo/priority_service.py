"""A simulated Priority Service over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote

from aiohttp import web


class DemoPriorityService:
    """`tiers` holds the users' tiers. While `down` it answers 503. While its gate is shut it does
    not answer at all."""

    def __init__(self, tiers: dict[str, str]) -> None:
        self.tiers = tiers
        self.asked: list[str] = []
        self.down = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[DemoPriorityService]:
        app = web.Application()
        app.router.add_get("/users/{user}/priority", self._priority)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _priority(self, request: web.Request) -> web.Response:
        user = unquote(request.match_info["user"])
        self.asked.append(user)
        del self.asked[:-1000]
        await self.gate.wait()
        if self.down:
            return web.Response(status=503)
        if user not in self.tiers:
            return web.Response(status=404)
        return web.json_response({"priority": self.tiers[user]})
