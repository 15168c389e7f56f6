"""What a WebSocket keeps until somebody listens, and what its peer may send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect

from fairlane.api.http import websocket_limits, write_timeout
from fairlane.api.http.websocket_limits import (
    MAX_FRAMES_PER_MINUTE,
    TOO_MANY_FRAMES,
    WebSocketInbox,
    WebSocketProtocol,
)
from fairlane.model.worker import Worker
from tests.api.raw import exchange
from tests.api.server import Gateway
from tests.world import World

MASK = b"\0\0\0\0"
PING = b"\x89\x81" + MASK + b"x"
PONG = b"\x8a\x80" + MASK
FIRST, MORE = b"\x01\x80" + MASK, b"\x00\x80" + MASK
CLOSED = b"\x88"


@asynccontextmanager
async def listening(
    world: World, served: Gateway
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, WebSocketProtocol]]:
    """A listener that has been told all there is, as bytes, and the other end of it."""
    await world.engine.register(Worker("w"))
    job = await world.submit("work")
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(
        b"GET /ws/%s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" % job.encode()
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b"POSITION")
    await reader.readuntil(b"}}}")
    (socket,) = served.sockets
    yield reader, writer, socket
    writer.close()


@pytest.mark.parametrize("frame", [PING, PONG, MORE], ids=["pings", "pongs", "fragments"])
async def test_a_flood_of_frames_ends_a_socket(world: World, served: Gateway, frame: bytes) -> None:
    """S13: otherwise a listener keeps the process busy with frames that say nothing."""
    async with listening(world, served) as (reader, writer, socket):
        if frame is MORE:
            writer.write(FIRST)
        writer.write(frame * (MAX_FRAMES_PER_MINUTE - 1))
        await exchange(served.port, b"GET /livez HTTP/1.1\r\nHost: localhost")
        assert not socket.transport.is_closing()
        writer.write(frame * 2)
        async with asyncio.timeout(10):
            said = (await reader.read()).rpartition(CLOSED)[2]
        assert int.from_bytes(said[1:3], "big") == TOO_MANY_FRAMES
        assert not served.sockets


async def test_frames_of_a_minute_ago_do_not_count(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(world, served) as (_, _, socket):
        for minute in range(3):
            monkeypatch.setattr(socket, "_minute_began", socket.loop.time() - 60 * (minute + 1))
            socket.data_received(PONG * MAX_FRAMES_PER_MINUTE)
        assert not socket.transport.is_closing()


async def test_a_listener_that_does_not_read_gets_no_pongs(world: World, served: Gateway) -> None:
    async with listening(world, served) as (reader, _, socket):
        socket.pause_writing()
        socket.data_received(PING * 100)
        assert socket.transport.get_write_buffer_size() == 0
        socket.resume_writing()
        socket.data_received(b"\x89\x81" + MASK + b"y")
        assert await reader.readexactly(3) == b"\x8a\x01y", "the first that is answered"


async def test_a_listener_that_never_reads_is_cut_off(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_timeout, "STALLED_WRITE_SECONDS", 0.01)
    async with listening(world, served) as (_, _, socket):
        socket.pause_writing()
        while served.sockets:  # noqa: ASYNC110 - no event tells that it is gone
            await asyncio.sleep(0)


async def test_a_listener_that_reads_again_is_kept(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await world.submit("work")
    monkeypatch.setattr(websocket_limits, "SLICE_BYTES", 7)
    async with connect(f"ws://127.0.0.1:{served.port}/ws/{job}") as client:
        (socket,) = served.sockets
        socket.pause_writing()
        socket.resume_writing()
        await (await client.ping(b"in several slices"))
        await client.send("nothing that matters, in several slices too")
        await (await client.ping())
        assert served.sockets == [socket]


async def test_nothing_is_read_before_the_handshake_is_answered(
    world: World, served: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """Frames of a stranger, who has no key, are not even parsed."""
    await served.key()
    del world
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(
        b"GET /ws/none HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    while not served.sockets:  # noqa: ASYNC110 - no event tells that it is there
        await asyncio.sleep(0)
    writer.write(PING * 1000)
    assert b" 401 " in await reader.readuntil(b"\r\n")
    assert not caplog.records
    writer.close()


async def test_what_has_come_is_heard_in_order_and_what_comes_wakes_who_waits() -> None:
    inbox = WebSocketInbox()
    for number in range(3):
        inbox.put_nowait(number)
    assert [await inbox.get() for _ in range(3)] == [0, 1, 2]
    assert inbox.empty()
    waiting = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.put_nowait("now")
    inbox.put_nowait("later")
    assert await waiting == "now"
    assert not inbox.empty()
    assert await inbox.get() == "later"


async def test_who_stops_waiting_takes_nothing_with_them() -> None:
    inbox = WebSocketInbox()
    waiting = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    inbox.put_nowait("kept")
    assert await inbox.get() == "kept"
