"""The task that listens for wake-ups."""

from __future__ import annotations

import asyncio

from fairlane.index.redis.bells import Bells
from fairlane.index.redis.server import Server

MOMENTS = 60


async def test_a_listener_ends_at_whatever_moment_it_is_told_to(redis_url: str) -> None:
    """I28: while it connects, while it subscribes, while it listens: closing never waits for it."""

    async def close_after(turns: int) -> None:
        server = Server(redis_url, "{bells}:")
        bells = Bells(server)
        hanging = asyncio.create_task(bells.hang("worker"))
        for _ in range(1 + turns):
            await asyncio.sleep(0)
        await bells.close()
        hanging.cancel()
        await server.close()

    async with asyncio.timeout(30):
        await asyncio.gather(*[close_after(turns) for turns in range(MOMENTS)])
