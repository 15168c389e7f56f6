"""S13: what is turned away from its head, and that nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlane.api.overload.shedding_protocol import MAX_PIPELINED_REFUSALS
from fairlane.config.settings import ServerSettings
from fairlane.model.key import Role
from tests.api.raw import Answer, exchange
from tests.api.server import Gateway, gateway
from tests.world import World

JOB = b'{"service": "work"}'
PATHS = (b"/api/v1/jobs", b"/api/v1/jobs:batch", b"/api/v1/tasks")


@pytest.fixture
async def full(world: World) -> AsyncIterator[Gateway]:
    """A gateway in which one submit is under way, and there may be no more."""
    async with gateway(world.engine, ServerSettings(submits=1, key_rate=0)) as served:
        with served.app.app_context.limiter.inside():
            yield served


def head(
    path: bytes = PATHS[0], *more: bytes, size: int = len(JOB), version: bytes = b"1.1"
) -> bytes:
    lines = [b"POST %s HTTP/%s" % (path, version), b"Host: localhost", *more]
    return b"\r\n".join([*lines, b"Content-Type: application/json", b"Content-Length: %d" % size])


def bearer(key: str) -> bytes:
    return b"Authorization: Bearer " + key.encode()


def said(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["code"]


async def developed(served: Gateway) -> None:
    """Until somebody has looked, nobody knows whether keys are needed."""
    async with served.client() as client:
        assert (await client.get("/queue/status")).status_code == 200


@pytest.mark.parametrize("path", PATHS)
async def test_a_submit_is_turned_away_before_its_body_has_come(full: Gateway, path: bytes) -> None:
    await developed(full)
    answer = await exchange(full.port, head(path, b"X-Request-Id: mine"))
    assert said(answer) == (503, "overloaded")
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == answer.json["request_id"] == "mine"
    assert answer.json["instance"] == path.decode()


async def test_the_same_is_said_here_and_by_the_guard(full: Gateway) -> None:
    await developed(full)
    own = b"X-Request-Id: mine"
    early = await exchange(full.port, head(PATHS[0], own), JOB)
    late = await exchange(full.port, head(PATHS[0], own, b"Origin: http://localhost"), JOB)
    assert (early.status, early.json, early.headers) == (late.status, late.json, late.headers)


async def test_who_is_turned_away_is_counted(full: Gateway) -> None:
    await developed(full)
    await exchange(full.port, head(), JOB)
    async with full.client() as client:
        counted = (await client.get("/metrics")).text
    assert 'fairlane_shed_total{reason="overloaded"} 1' in counted
    labels = 'route="/api/v1/jobs",method="POST",status="5xx"'
    assert f"fairlane_http_request_seconds_count{{{labels}}} 1" in counted


async def test_a_connection_goes_on_after_it_was_turned_away(full: Gateway) -> None:
    await developed(full)
    reader, writer = await asyncio.open_connection("127.0.0.1", full.port)
    writer.write(head() + b"\r\n\r\n")
    assert b" 503 " in await reader.readuntil(b"}")
    writer.write(JOB + head() + b"\r\n\r\n" + JOB + head() + b"\r\n\r\n" + JOB)
    assert b" 503 " in await reader.readuntil(b"}")
    assert b" 503 " in await reader.readuntil(b"}")
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 200 OK" in await reader.readuntil(b"ok")
    writer.close()


async def test_who_sends_many_at_once_and_is_refused_begins_anew(full: Gateway) -> None:
    await developed(full)
    reader, writer = await asyncio.open_connection("127.0.0.1", full.port)
    writer.write((head() + b"\r\n\r\n" + JOB) * 100)
    assert (await reader.read()).count(b" 503 ") == MAX_PIPELINED_REFUSALS
    writer.close()


async def test_a_body_that_never_comes_is_not_waited_for(world: World) -> None:
    async with gateway(world.engine, ServerSettings(submits=1, body_timeout=0.05)) as served:
        await developed(served)
        with served.app.app_context.limiter.inside():
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(head() + b"\r\n\r\n{")
            assert (await reader.read()).count(b"HTTP/1.1") == 1
            writer.close()


async def test_who_wants_no_more_than_one_answer_gets_it_and_no_connection(full: Gateway) -> None:
    await developed(full)
    for request in (head(version=b"1.0"), head(PATHS[0], b"Connection: close")):
        reader, writer = await asyncio.open_connection("127.0.0.1", full.port)
        writer.write(request + b"\r\n\r\n" + JOB)
        assert b"overloaded" in await reader.read()
        writer.close()


async def test_everything_before_it_on_the_ladder_is_said_first(full: Gateway) -> None:
    client, worker = await full.key(Role.CLIENT), await full.key(Role.WORKER)
    for _ in range(2):  # unknown at first, and then known
        assert said(await exchange(full.port, head(), JOB)) == (401, "unauthorized")
        wrong = head(PATHS[0], bearer(client[:-1] + "_"))
        assert said(await exchange(full.port, wrong, JOB)) == (401, "unauthorized")
        not_theirs = head(PATHS[0], bearer(worker))
        assert said(await exchange(full.port, not_theirs, JOB)) == (403, "forbidden")
        large = head(PATHS[0], bearer(client), size=9 << 20)
        assert said(await exchange(full.port, large)) == (413, "too_large")
        foreign = head(PATHS[0], bearer(client)).replace(b"localhost", b"elsewhere")
        assert said(await exchange(full.port, foreign, JOB)) == (421, "host_not_allowed")
        assert said(await exchange(full.port, head(PATHS[0], bearer(client)), JOB))[0] == 503


async def test_a_key_that_asks_too_often_is_told_so_from_the_head(world: World) -> None:
    async with gateway(world.engine, ServerSettings(key_rate=6)) as served:
        request = head(PATHS[0], bearer(await served.key()), b"X-Request-Id: mine")
        assert (await exchange(served.port, request, JOB)).status == 202
        first = await exchange(served.port, request, JOB)
        again = await exchange(served.port, request)
        assert said(first) == said(again) == (429, "too_many_requests")
        assert first.json == again.json
        assert 8 <= int(again.headers["retry-after"]) <= 12


async def test_what_is_let_in_counts_until_it_is_answered_whatever_that_is(world: World) -> None:
    async with gateway(world.engine, ServerSettings(submits=3)) as served:
        await developed(served)
        limiter = served.app.app_context.limiter
        for body in (JOB, b'{"service": "work", "priority": "high"}', b"{", b"[]"):
            await exchange(served.port, head(size=len(body)), body)
            assert limiter.room_for_all
        upgrade = head(PATHS[0], b"Connection: Upgrade", b"Upgrade: websocket")
        await exchange(served.port, upgrade, JOB)
        with limiter.inside():
            limiter.let_in(lambda _: None)
            assert limiter.has_room()
            limiter.let_in(lambda _: None)
            assert said(await exchange(served.port, head(), JOB)) == (503, "overloaded")


async def test_who_was_let_in_is_not_refused_later(world: World) -> None:
    async with gateway(world.engine, ServerSettings(submits=2)) as served:
        await developed(served)
        limiter = served.app.app_context.limiter
        begin = limiter.begin
        coming = asyncio.Event()

        def full_by_now() -> None:
            limiter.let_in(lambda _: None)
            coming.set()
            begin()

        limiter.begin = full_by_now  # type: ignore[method-assign]
        assert (await exchange(served.port, head(), JOB)).status == 202
        assert coming.is_set()


async def test_a_body_that_takes_its_time_takes_no_place(world: World) -> None:
    async with gateway(world.engine, ServerSettings(submits=1)) as served:
        await developed(served)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head() + b"\r\n\r\n" + JOB[:5])
        await writer.drain()
        assert (await exchange(served.port, head(), JOB)).status == 202
        writer.write(JOB[5:])
        assert b" 202 " in await reader.readuntil(b"}")
        writer.close()


async def test_refused_is_who_is_noted_too(world: World) -> None:
    server = ServerSettings(submits=1, access_log=True)
    async with gateway(world.engine, server) as served:
        await developed(served)
        with served.app.app_context.limiter.inside():
            for path in PATHS:
                assert said(await exchange(served.port, head(path), JOB)) == (503, "overloaded")


async def test_the_lowest_tier_is_turned_away_with_its_body_in_pieces_too(world: World) -> None:
    async with gateway(world.engine, ServerSettings(submits=2)) as served:
        await developed(served)
        low = b'{"service": "work", "priority": "low"}'
        with served.app.app_context.limiter.inside():
            for cut in (0, 10, len(low)):
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
                writer.write(head(size=len(low)) + b"\r\n\r\n" + low[:cut])
                await writer.drain()
                writer.write(low[cut:])
                assert b" 503 " in await reader.readuntil(b"}")
                writer.close()


async def test_one_connection_too_many_is_sent_away_unless_it_makes_room(world: World) -> None:
    async with (
        gateway(world.engine, ServerSettings(connections=1)) as served,
        served.client() as client,
    ):
        assert (await client.get("/livez")).status_code == 200
        refused = await exchange(served.port, b"GET /queue/status HTTP/1.1\r\nHost: localhost")
        assert said(refused) == (503, "too_many_connections")
        assert 4 <= int(refused.headers["retry-after"]) <= 6
        assert refused.headers["connection"] == "close"
        assert said(await exchange(served.port, head(), JOB)) == (503, "too_many_connections")
        for request in (b"DELETE /api/v1/jobs/none", b"POST /internal/workers/me/poll"):
            passed = await exchange(served.port, request + b" HTTP/1.1\r\nHost: localhost")
            assert said(passed) != (503, "too_many_connections")
        alive = await exchange(served.port, b"GET /livez HTTP/1.1\r\nHost: localhost")
        assert (alive.status, alive.headers["connection"]) == (200, "close"), "nor does it stay"
