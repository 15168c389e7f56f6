"""S3, S13, S26: what a stranger can do with a connection before a request is one."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.config.settings import ServerSettings
from tests.api.raw import exchange
from tests.api.server import Gateway, gateway
from tests.world import World

LONG = b"x" * 8_000


@pytest.mark.parametrize("piece", [b"X-Long: " + LONG + b"\r\n", LONG], ids=["many", "one"])
async def test_headers_without_an_end_are_cut_off(world: World, piece: bytes) -> None:
    """Many headers, or one that never ends: 16 MiB of them would be in memory otherwise. The time
    limit of a request must not be what cuts them off."""
    async with gateway(world.engine, ServerSettings(body_timeout=600)) as served:
        with pytest.raises(ConnectionError):
            await _send_headers(served.port, piece, 2 << 10)
        async with served.client() as client:
            assert (await client.get("/livez")).status_code == 200


async def _send_headers(port: int, piece: bytes, pieces: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /livez HTTP/1.1\r\nX-First: ")
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


async def test_a_head_that_does_not_come_is_not_waited_for(world: World) -> None:
    async with gateway(world.engine, ServerSettings(body_timeout=0.05)) as served:
        head = b"GET /livez HTTP/1.1\r\nHost: localhost"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head + b"\r\n\r\n")
        assert b" 200 OK" in await reader.readuntil(b"ok")
        writer.write(head)
        assert b" 408 " in (said := await reader.read())
        assert b'"code":"too_slow"' in said
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        assert await reader.read() == b"", "who says nothing hears nothing"
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"HELLO",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x",
        b"GET / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"0" * 5_000,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"0" * 5_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2, 2",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\nHost: elsewhere",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n Folded: yes",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked",
    ],
)
async def test_what_two_servers_could_read_differently_is_refused(
    served: Gateway, head: bytes
) -> None:
    answer = await exchange(served.port, head)
    assert (answer.status, answer.json["code"]) == (400, "malformed_request")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"


UPGRADE = (
    b"GET /ws/none HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
)


async def test_a_handshake_that_cannot_be_read_is_not_left_open(served: Gateway) -> None:
    answer = await exchange(served.port, UPGRADE + b"\r\nX-Many: x" * 200)
    assert (answer.status, answer.json["code"]) == (400, "malformed_request")


async def test_a_refused_socket_is_no_error_of_ours(
    served: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await exchange(served.port, UPGRADE + b"\r\nOrigin: https://evil.example")
    assert (answer.status, answer.json["code"]) == (403, "origin_not_allowed")
    assert not caplog.records


async def test_a_host_is_named_once(served: Gateway) -> None:
    head = b"GET /api/v1/jobs HTTP/1.1\r\nHost: evil.example\r\nHost: localhost"
    answer = await exchange(served.port, head)
    assert (answer.status, answer.json["code"]) == (400, "repeated_header")


@pytest.mark.parametrize(
    "name", [b"localhost:80@evil.example", b"localhost:x", b"localhost/", b"[::1", b"local host"]
)
async def test_a_host_is_a_name_and_a_port(served: Gateway, name: bytes) -> None:
    answer = await exchange(served.port, b"GET /queue/status HTTP/1.1\r\nHost: " + name)
    assert (answer.status, answer.json["code"]) == (400, "malformed_request")


async def test_an_origin_is_a_name_and_a_port(served: Gateway) -> None:
    """A page of another name may do nothing, whatever stands before that."""
    head = b"DELETE /api/v1/jobs/none HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost"
    assert (await exchange(served.port, head + b":80")).status == 404
    foreign = await exchange(served.port, head + b":80@evil.example")
    assert (foreign.status, foreign.json["code"]) == (403, "origin_not_allowed")


async def test_what_comes_after_a_body_is_no_header(served: Gateway) -> None:
    """A proxy checks the headers and passes trailers on."""
    answer = await exchange(
        served.port,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: evil.example\r\nTransfer-Encoding: chunked",
        b"2\r\n{}\r\n0\r\nHost: localhost\r\n\r\n",
    )
    assert answer.status == 421
