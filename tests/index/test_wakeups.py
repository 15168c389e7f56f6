"""The task that listens for wake-ups."""

from __future__ import annotations

import asyncio

from fairlane.index.redis.script_client import ScriptClient
from fairlane.index.redis.wakeups import Wakeups

MOMENTS = 60


async def test_a_listener_ends_at_whatever_moment_it_is_told_to(redis_url: str) -> None:
    """I28: while it connects, while it subscribes, while it listens: closing never waits for it."""

    async def close_after(turns: int) -> None:
        client = ScriptClient(redis_url, "{wakeups}:")
        wakeups = Wakeups(client)
        hanging = asyncio.create_task(wakeups.register("worker"))
        for _ in range(1 + turns):
            await asyncio.sleep(0)
        await wakeups.close()
        hanging.cancel()
        await client.close()

    async with asyncio.timeout(30):
        await asyncio.gather(*[close_after(turns) for turns in range(MOMENTS)])
