"""S13, S26: requests on one connection keep their borders, and bytes and time are bounded."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest

from fairlane.api.http import write_timeout
from fairlane.api.http.protocol import MAX_HEADERS, MAX_PIPELINED_REQUESTS
from fairlane.config.settings import ServerSettings
from tests.api.raw import answer, exchange
from tests.api.server import Gateway, gateway
from tests.world import World

HOST = b"Host: localhost\r\n"
LIVE = b"GET /livez HTTP/1.1\r\n" + HOST
JOB = b'{"service": "work"}'
POST = b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
SIZE = b"Content-Length: %d\r\n" % len(JOB)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
HIDDEN = POST + SIZE + b"\r\n" + JOB
OFFERS = (b"h2c", b"TLS/1.0", b"nothing", b"websocket, h2c", b"h2c\r\nUpgrade: websocket")
SOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def offering(protocol: bytes) -> bytes:
    return b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\n"


async def told(port: int, *parts: bytes) -> bytes:
    """All that is answered until the server closes. Each part is sent when the one before it has
    been read: another connection has been answered since."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(_all_of(reader))
    try:
        async with asyncio.timeout(10):
            for part in parts:
                writer.write(part)
                await exchange(port, LIVE.removesuffix(b"\r\n"))
            return await reading
    finally:
        writer.close()


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    found = b""
    with suppress(ConnectionError):  # closed before all parts were sent
        while more := await reader.read(65_536):
            found += more
    return found


async def jobs(served: Gateway) -> int:
    async with served.client() as client:
        return len((await client.get("/api/v1/jobs")).json()["jobs"])


# --- upgrades ------------------------------------------------------------------------------------
@pytest.mark.parametrize("protocol", OFFERS)
async def test_the_body_of_a_request_that_offers_an_upgrade_is_no_request(
    served: Gateway, protocol: bytes
) -> None:
    head = LIVE + offering(protocol) + b"Content-Length: %d\r\n\r\n" % len(HIDDEN)
    for parts in ((head + HIDDEN,), (head, HIDDEN), (head, HIDDEN[:40], HIDDEN[40:])):
        said = await told(served.port, *parts)
        assert said.count(b"HTTP/1.1 ") == said.count(b"HTTP/1.1 200 ") == 1
        assert b"connection: close" in said
    assert await jobs(served) == 0


async def test_what_comes_after_an_offered_upgrade_is_not_read(served: Gateway) -> None:
    for parts in (
        (LIVE + offering(b"h2c") + b"\r\n", HIDDEN),
        (LIVE + offering(b"h2c") + b"\r\n" + HIDDEN,),
        (b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", HIDDEN),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HIDDEN),
        (b"POST /ws/none HTTP/1.1\r\n" + HOST + SOCKET + SIZE + b"\r\n", JOB, HIDDEN),
        (b"GET /ws/none HTTP/1.1\r\n" + HOST + SOCKET + SIZE + b"\r\n", JOB, HIDDEN),
        (b"GET /ws/none HTTP/1.1\r\n" + HOST + SOCKET + b"\r\n" + HIDDEN,),
    ):
        assert (await told(served.port, *parts)).count(b"HTTP/1.1 ") == 1, parts
    assert await jobs(served) == 0


async def test_a_submit_that_offers_an_upgrade_keeps_its_body(served: Gateway) -> None:
    """Java's client offers h2c with every first request of a connection."""
    head = POST + offering(b"h2c")
    in_chunks = b"7\r\n" + JOB[:7] + b"\r\nc;x=y\r\n" + JOB[7:] + b"\r\n0\r\nX-Trailer: x\r\n\r\n"
    ways = (
        (head + SIZE + b"\r\n" + JOB,),
        (head + SIZE + b"\r\n", JOB),
        (head[:30], head[30:] + SIZE + b"\r\n" + JOB[:3], JOB[3:]),
        (head + CHUNKED + b"\r\n" + in_chunks,),
        (head + CHUNKED + b"\r\n", in_chunks[:9], in_chunks[9:]),
        (LIVE + b"\r\n" + head + SIZE + b"\r\n" + JOB + HIDDEN,),
    )
    for parts in ways:
        said = await told(served.port, *parts)
        assert said.count(b"HTTP/1.1 202 ") == 1, said
    assert await jobs(served) == len(ways)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"POST /ws/none HTTP/1.1\r\n" + HOST + SOCKET, b""),
        (b"GET /ws/none HTTP/1.0\r\n" + HOST + SOCKET, b""),
        (b"GET /ws/none HTTP/1.1\r\n" + HOST + SOCKET + b"Content-Length: 2\r\n", b"{}"),
        (b"GET /ws/none HTTP/1.1\r\n" + HOST + SOCKET + CHUNKED, b"0\r\n\r\n"),
        (b"GET /ws/none HTTP/1.1\r\n" + HOST + SOCKET, b"\x89\x80\0\0\0\0"),
    ],
)
async def test_only_a_get_without_a_body_opens_a_socket(
    served: Gateway, head: bytes, body: bytes
) -> None:
    refused = await exchange(served.port, head.removesuffix(b"\r\n"), body)
    assert (refused.status, refused.json["code"]) == (400, "malformed_request")
    assert "WebSocket" in refused.json["detail"]
    assert refused.headers["connection"] == "close"


async def test_a_socket_is_not_opened_before_the_last_answer(served: Gateway) -> None:
    opening = b"GET /ws/none HTTP/1.1\r\n" + HOST + SOCKET + b"\r\n"
    said = await told(served.port, b"GET /queue/status HTTP/1.1\r\n" + HOST + b"\r\n" + opening)
    assert said.count(b"HTTP/1.1 200 ") == said.count(b"HTTP/1.1 ") == 1


# --- borders -------------------------------------------------------------------------------------
async def test_nothing_is_read_behind_the_last_request(served: Gateway) -> None:
    for last in (
        LIVE + b"Connection: close\r\n\r\n",
        b"GET /livez HTTP/1.0\r\n\r\n",
        LIVE + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    ):
        assert (await told(served.port, last + HIDDEN)).count(b"HTTP/1.1 ") == 1
        assert (await told(served.port, last, HIDDEN)).count(b"HTTP/1.1 ") == 1
    assert await jobs(served) == 0


async def test_requests_before_one_that_cannot_be_read_are_answered(served: Gateway) -> None:
    status = b"GET /queue/status HTTP/1.1\r\n" + HOST + b"\r\n"
    said = await told(served.port, status + status + b"HELLO\r\n\r\n" + HIDDEN)
    assert said.count(b"HTTP/1.1 200 ") == said.count(b"HTTP/1.1 ") == 2
    assert await jobs(served) == 0


async def test_many_requests_at_once_are_answered_up_to_a_number(served: Gateway) -> None:
    said = await told(served.port, (LIVE + b"\r\n") * 1_000)
    assert said.count(b"HTTP/1.1 200 ") == MAX_PIPELINED_REQUESTS + 1


async def test_a_url_names_the_same_host_as_the_header(served: Gateway) -> None:
    path = b"/queue/status HTTP/1.1\r\nHost: localhost:8000"
    assert (await exchange(served.port, b"GET http://localhost:8000" + path)).status == 200
    for other in (
        b"http://evil.example",
        b"http://localhost:8000@evil.example",
        b"ftp://localhost",
    ):
        refused = await exchange(served.port, b"GET " + other + path)
        assert (refused.status, refused.json["code"]) == (400, "malformed_request")


async def test_another_version_of_http_is_not_spoken(served: Gateway) -> None:
    for version in (b"2.0", b"0.9"):
        refused = await exchange(served.port, b"GET /livez HTTP/" + version + b"\r\nHost: x")
        assert (refused.status, refused.json["code"]) == (505, "http_version_not_supported")


# --- bytes ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (LIVE + CHUNKED + b"\r\n0\r\nX-Long: ", b"x" * 8_000),
        (LIVE + CHUNKED + b"\r\n0\r\n", b"X-Many: x\r\n" * 800),
        (LIVE + CHUNKED + b"\r\n5;", b"x" * 8_000),
        (LIVE + CHUNKED + b"\r\n", b"0" * 8_000),
        (LIVE + CHUNKED + b"\r\n", b"5;x\r\nhello\r\n" * 800),
        (LIVE + b"Content-Length: 999999999\r\n\r\n", b"x" * 8_000),
        (LIVE + b"\r\n", b"\r\n" * 4_000),
    ],
    ids=["trailer", "trailers", "extension", "size", "chunks", "body", "blank lines"],
)
async def test_bytes_that_no_route_wants_are_cut_off(
    served: Gateway, beginning: bytes, piece: bytes
) -> None:
    """Otherwise 64 MiB of them would be read, and a stranger needs no key for that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(beginning)
    assert (await answer(reader)).status == 200
    with pytest.raises(ConnectionError):
        await _send(writer, piece, 8 << 10)
    writer.close()


async def _send(writer: asyncio.StreamWriter, piece: bytes, times: int) -> None:
    for _ in range(times):
        writer.write(piece)
        await writer.drain()


async def test_a_head_has_so_many_headers(served: Gateway) -> None:
    head = LIVE + b"X: y\r\n" * (MAX_HEADERS - 2) + b"X: y"
    assert (await exchange(served.port, head)).status == 200
    refused = await exchange(served.port, head + b"\r\nX: y")
    assert (refused.status, refused.json["code"]) == (431, "headers_too_large")


async def test_a_body_in_small_chunks_is_read(served: Gateway) -> None:
    body = b'{"service": "work", "input_data": "' + b"x" * 20_000 + b'"}'
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    taken = await exchange(
        served.port, (POST + CHUNKED).removesuffix(b"\r\n"), pieces + b"0\r\n\r\n"
    )
    assert taken.status == 202


# --- time ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rest", [CHUNKED + b"\r\n0\r\nX: ", b"Content-Length: 9\r\n\r\n{"])
async def test_a_body_that_no_route_wants_is_not_waited_for(world: World, rest: bytes) -> None:
    async with gateway(world.engine, ServerSettings(body_timeout=0.05)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(LIVE + rest)
        async with asyncio.timeout(10):
            assert (await reader.read()).count(b"HTTP/1.1 200 ") == 1
        writer.close()


async def test_a_connection_goes_on_after_a_body_that_no_route_wants(world: World) -> None:
    async with gateway(world.engine, ServerSettings(body_timeout=10)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(LIVE + b"Content-Length: 5\r\n\r\n")
        assert (await answer(reader)).status == 200
        (connection,) = served.connections
        writer.write(b"hello" + LIVE + b"\r\n")
        assert (await answer(reader)).status == 200
        assert connection._timer is None  # noqa: SLF001 - nothing is late any more
        writer.close()


async def test_blank_lines_keep_no_connection_open(served: Gateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(LIVE + b"\r\n")
    assert (await answer(reader)).status == 200
    (connection,) = served.connections
    timer = connection.timeout_keep_alive_task
    connection.data_received(b"\r\n")
    assert timer is not None
    assert connection.timeout_keep_alive_task is timer
    assert not timer.cancelled()
    writer.close()


async def test_a_stream_ends_with_its_connection_whatever_waits_behind_it(
    world: World, served: Gateway
) -> None:
    job = (await world.submit("work")).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    stream = b"GET /api/v1/jobs/%s/events HTTP/1.1\r\nAccept: text/event-stream\r\n" % job
    writer.write(stream + HOST + b"\r\n")
    await reader.readuntil(b"POSITION")
    (connection,) = served.connections
    writer.write(LIVE + b"\r\n")
    while not connection.pipeline:  # noqa: ASYNC110 - no event tells that it has been read
        await asyncio.sleep(0)
    running = {*connection.tasks}
    assert len(running) == 1
    connection.transport.abort()
    async with asyncio.timeout(10):
        await asyncio.wait(running)
    writer.close()


async def test_a_caller_that_reads_nothing_is_cut_off(
    served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_timeout, "STALLED_WRITE_SECONDS", 0.05)
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(caller, ("127.0.0.1", served.port))
        request = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
        await loop.sock_sendall(caller, request * MAX_PIPELINED_REQUESTS)
        await exchange(served.port, LIVE.removesuffix(b"\r\n"))
        while served.connections:  # noqa: ASYNC110 - no event tells that it is gone
            await asyncio.sleep(0)
