"""A connection that closes at the wrong moment, on the event loop that processes use."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop
from redis import exceptions

from fairlane.index.redis.connect import RedisConnection


def test_a_write_to_a_connection_that_was_just_closed_is_a_lost_connection(redis_url: str) -> None:
    """I26, I33: on uvloop it was a RuntimeError, which ended the listener for wake-ups for good."""

    async def write_to_closed() -> None:
        client = RedisConnection(redis_url, connections=1, timeout=2)
        pool: Any = client.redis.connection_pool
        connection = pool.make_connection()
        try:
            await connection.connect()
            connection._writer.transport.abort()  # noqa: SLF001
            await asyncio.sleep(0)
            with pytest.raises(exceptions.ConnectionError):
                await connection.send_packed_command(b"PING\r\n", check_health=False)
        finally:
            await connection.disconnect(nowait=True)
            await client.close()

    uvloop.run(write_to_closed())
