"""What the index costs its server, as docs/decisions/0007-redis.md says."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from fairlane.clock import ManualClock
from fairlane.ids import Ids
from fairlane.index.redis import RedisIndex
from fairlane.model.queue_entry import Entry
from fairlane.units import SECOND
from tests.unit.driver import job, plain, world

JOBS, A_CALL = 10_000, 1_000
USERS = 50
"""Few enough that a line is longer than what the server packs into one piece."""

NOW = 1_700_000_000 * SECOND
AT_MOST = 260
"""Bytes: 205 to 250, depending on how far the server's tables have grown, and some more for other
servers."""


async def test_a_waiting_job_takes_no_more_memory_than_the_documents_say(
    redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the ids that jobs have, and several jobs a user."""
    entries = waiting_jobs(JOBS + 100)
    catalog = world(plain()).index.catalog
    async with (
        Redis.from_url(redis_url) as server,
        RedisIndex(catalog, ManualClock(0), redis_url, prefix="{memory}:") as index,
    ):
        await index.begin("e")
        assert await index.open("e", NOW)
        await index.put(entries[:100], NOW)
        before = await used(server)
        for first in range(100, len(entries), A_CALL):
            await index.put(entries[first : first + A_CALL], NOW)
        a_job = (await used(server) - before) / JOBS
        assert sum(depth.waiting for depth in (await index.stats()).depths) == JOBS + 100
    with capsys.disabled():
        print(f"\n{a_job:.0f} bytes a waiting job, {JOBS} jobs", end=" ")
    assert 100 < a_job <= AT_MOST


def waiting_jobs(n: int) -> list[Entry]:
    ids = Ids()
    return [job(ids.new(NOW), at=NOW / SECOND, user=f"user-{k % USERS}") for k in range(n)]


async def used(server: Redis) -> int:
    return int((await server.info("memory"))["used_memory"])
