"""A viewer of the dashboard that reads slowly, on a real connection: it gets the newest frame or
none, and one that does not read is closed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.websockets import WebSocket

from fairlane.api.routes import dashboard
from fairlane.dashboard.audience import ADMINISTRATORS
from fairlane.dashboard.broadcast import Broadcast
from tests.api.server import Gateway
from tests.world import World

pytestmark = pytest.mark.timeout(60)

MORE_THAN_BUFFERS_BYTES = 32 << 20
TEXT, CLOSE = 1, 8


class RawViewer:
    """Reads WebSocket frames only when it is told to: what it does not read stays in the buffers of
    the two systems, and then in the server."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def head(self) -> tuple[int, int]:
        """The opcode and the length of the next frame."""
        first, size = await self._reader.readexactly(2)
        if size >= 126:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
        return first & 15, size

    async def body(self, size: int) -> bytes:
        return await self._reader.readexactly(size)

    async def message(self) -> dict[str, Any]:
        opcode, size = await self.head()
        assert opcode == TEXT
        found: dict[str, Any] = json.loads(await self.body(size))
        return found


@asynccontextmanager
async def viewing(served: Gateway) -> AsyncIterator[tuple[RawViewer, Broadcast]]:
    """A viewer that has the first frame. Further frames are published by the test."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", served.port))
    reader, writer = await asyncio.open_connection(sock=own)
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    viewer, sampler = RawViewer(reader), served.app.app_context.sampler
    broadcast = await sampler.join(ADMINISTRATORS)
    await sampler.stop()
    while (await viewer.message())["n"] != broadcast.number:
        pass
    yield viewer, broadcast
    sampler.leave(ADMINISTRATORS)
    writer.close()


async def test_a_slow_viewer_gets_the_newest_frame_and_none_of_those_between(
    world: World, served: Gateway
) -> None:
    """S10: one message at most waits for a viewer."""
    del world
    async with viewing(served) as (viewer, broadcast):
        first = broadcast.number
        broadcast.publish(first + 1, {"blob": "x" * MORE_THAN_BUFFERS_BYTES})
        opcode, size = await viewer.head()
        assert (opcode, size > MORE_THAN_BUFFERS_BYTES) == (TEXT, True)
        for n in range(2, 100):
            broadcast.publish(first + n, {"number": n})
        assert json.loads(await viewer.body(size))["n"] == first + 1
        assert await viewer.message() == {"n": first + 99, "full": {"number": 99}}
        broadcast.publish(first + 100, {"number": 100})
        assert (await viewer.message())["n"] == first + 100


async def test_a_viewer_that_does_not_read_is_closed_with_1013(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S10"""
    del world
    async with viewing(served) as (viewer, broadcast):
        monkeypatch.setattr(dashboard, "SEND_TIMEOUT_SECONDS", 0.05)
        closing = asyncio.Event()
        close = WebSocket.close

        async def noted(*given: Any) -> None:
            closing.set()
            await close(*given)

        monkeypatch.setattr(WebSocket, "close", noted)
        broadcast.publish(broadcast.number + 1, {"blob": "x" * MORE_THAN_BUFFERS_BYTES})
        opcode, size = await viewer.head()
        assert opcode == TEXT
        broadcast.publish(broadcast.number + 1, {"number": 2})
        await closing.wait()
        await viewer.body(size)
        opcode, size = await viewer.head()
        assert opcode == CLOSE
        assert int.from_bytes((await viewer.body(size))[:2], "big") == 1013
