"""S13, S26: a submit like one that was turned away is not read once more, and nobody is taken for
somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.api.overload.request_matcher import (
    MAX_HEAD_BYTES,
    MAX_REMEMBERED_HEADS,
    MatchedRequest,
    RequestMatcher,
)
from fairlane.api.overload.retry_pacing import RetryPacer
from fairlane.config.settings import ServerSettings
from fairlane.model.key import Role
from tests.api.raw import Answer, answer
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.world import World

JOB = b'{"service": "work", "priority": "%s"}'
PATH = b"/api/v1/jobs"
LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def request(body: bytes = JOB % b"low", *more: bytes, path: bytes = PATH, key: str = "") -> bytes:
    lines = [b"POST %s HTTP/1.1" % path, b"Host: localhost", *more]
    if key:
        lines.append(b"Authorization: Bearer " + key.encode())
    lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Line:
    """A connection, and what is said over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, *pieces: bytes) -> None:
        """Each is heard before the next one is said: what was sent on this machine has arrived."""
        for piece in pieces:
            self._writer.write(piece)
            for _ in range(5):
                await asyncio.sleep(0)

    async def ask(self, *pieces: bytes) -> Answer:
        await self.say(*pieces)
        return await answer(self._reader)

    async def hear(self) -> Answer:
        return await answer(self._reader)

    async def is_over(self) -> bool:
        return not await self._reader.read()


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def line(served: Gateway) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        async with asyncio.timeout(10):
            yield Line(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def full(world: World) -> AsyncIterator[Gateway]:
    """A gateway in which one submit is under way, and there may be no more."""
    async with gateway(world.engine, ServerSettings(submits=1, key_rate=0)) as served:
        with served.app.app_context.limiter.inside():
            yield served


async def known(served: Gateway, key: str) -> str:
    async with served.client(key) as client:
        assert (await client.get("/queue/status")).status_code == 200
    return key


# --- what is the same ----------------------------------------------------------------------------
def heads(*known: bytes) -> RequestMatcher[str]:
    found = RequestMatcher[str]()
    for each in known:
        found.learn(each, "me")
    return found


def test_the_same_head_is_known_by_its_bytes_whatever_changes_with_every_request() -> None:
    known = heads(request(b"{}", b"X-Request-Id: first", b"Idempotency-Key: a:1"))
    other = (b"X-Request-Id: second", b"Idempotency-Key: b.2")
    assert known.match(request(b"[1, 2]", *other)) == MatchedRequest("me", b"[1, 2]", b"second")


def test_no_more_heads_are_kept_than_a_process_has_room_for() -> None:
    known = heads(*(request(b"{}", b"X-Number: %d" % n) for n in range(MAX_REMEMBERED_HEADS + 1)))
    assert known.match(request(b"{}", b"X-Number: 0")) is None
    assert known.match(request(b"{}", b"X-Number: %d" % MAX_REMEMBERED_HEADS)) is not None


@pytest.mark.parametrize(
    "other",
    [
        request(b"{}", path=b"/api/v1/tasks"),
        request(b"{}").replace(b"localhost", b"elsewhere"),
        request(b"{}").replace(b"Host", b"host"),
        request(b"{}").replace(b"Content-Length: 2", b"Content-Length: 1"),
        request(b"{}").replace(b"Content-Length: 2", b"Content-Length: +2"),
        request(b"{}").replace(b"Content-Length: 2", b"Content-Length: 0x2"),
        request(b"{}").replace(b"Content-Length: 2", b"Content-Length: 2 "),
        request(b"{}").replace(b"Content-Length: 2", b"Content-Length: 2\r\nExpect: 100-continue"),
        request(b"{}").replace(b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        request(b"{}", b"X-Request-Id: mine"),
        request(b"{}") + b"\r\n",
        request(b"{}") + request(b"{}"),
        b"\r\n" + request(b"{}"),
        request(b"{}")[:-1],
        b"",
    ],
)
def test_anything_else_is_another_request(other: bytes) -> None:
    assert heads(request(b"{}")).match(other) is None


@given(st.binary(max_size=40), st.integers(min_value=0))
def test_bytes_in_between_make_it_another_request(extra: bytes, at: int) -> None:
    """Only the body may be another, and its size says how long it is."""
    whole = request(b"{}")
    place = at % (len(whole) + 1)
    changed = whole[:place] + extra + whole[place:]
    assert heads(whole).match(changed) == (MatchedRequest("me", b"{}", b"") if not extra else None)


@pytest.mark.parametrize(
    "strange",
    [
        request(b"{}") + b"\r\n",
        b"\r\n" + request(b"{}"),
        request(b"{}")[:-1],
        request(b"{}").replace(b"Content-Length: 2\r\n", b""),
        request(b"{}", b"Content-Length: 2"),
        request(b"{}", b"X-Request-Id: a", b"X-Request-Id: b"),
        request(b"{}", b"X-Request-Id: a\nX-Other: b"),
        request(b"{}", b"X-Request-Id: a\r\n b"),
        request(b"{}", b"X-Other: a\r\n\tb"),
        request(b"{}", b"X-Long: " + b"x" * MAX_HEAD_BYTES),
    ],
)
def test_only_one_whole_plain_request_is_remembered(strange: bytes) -> None:
    assert heads(strange).match(strange) is None


# --- over a connection ---------------------------------------------------------------------------
async def test_who_asks_again_hears_the_same_and_is_counted(full: Gateway) -> None:
    key = await known(full, await full.key())
    own = b"X-Request-Id: %d"
    async with line(full) as caller:
        first, again, last = [
            await caller.ask(request(JOB % tier, own % number, key=key))
            for number, tier in enumerate((b"low", b"medium", b"high"))
        ]
        assert (await caller.ask(LIVE)).status == 200
    assert [each.status for each in (first, again, last)] == [503] * 3
    assert [each.json.pop("request_id") for each in (first, again, last)] == ["0", "1", "2"]
    differing = {"x-request-id"}
    for each in (again, last):
        assert {**each.json, "request_id": ""} == {**first.json, "request_id": ""}
        assert {k: v for k, v in each.headers.items() if k not in differing} == {
            k: v for k, v in first.headers.items() if k not in differing
        }
    async with full.client(await full.key(role=Role.ADMIN)) as client:
        counted = (await client.get("/metrics")).text
    assert 'fairlane_shed_total{reason="overloaded"} 3' in counted


async def test_a_request_cut_anywhere_is_answered_once(full: Gateway) -> None:
    key = await known(full, await full.key())
    whole = request(key=key)
    async with line(full) as caller:
        for cut in range(len(whole) + 1):
            assert (await caller.ask(whole)).status == 503
            assert (await caller.ask(whole[:cut], whole[cut:])).status == 503
        assert (await caller.ask(LIVE)).status == 200


async def test_requests_that_come_together_are_answered_each(full: Gateway) -> None:
    key = await known(full, await full.key())
    whole = request(key=key)
    async with line(full) as caller:
        for _ in range(2):
            assert (await caller.ask(whole)).status == 503
        await caller.say(whole + whole + LIVE)
        assert [(await caller.hear()).status for _ in range(3)] == [503, 503, 200]


async def test_what_stands_behind_the_body_is_a_request_of_its_own(full: Gateway) -> None:
    key = await known(full, await full.key())
    whole = request(b"{}", key=key)
    async with line(full) as caller:
        assert (await caller.ask(whole)).status == 503
        await caller.say(whole + LIVE)
        assert [(await caller.hear()).status for _ in range(2)] == [503, 200]


async def test_a_part_of_a_request_is_never_taken_for_one(full: Gateway) -> None:
    """Otherwise whoever shares a connection could say who the next one is."""
    key = await known(full, await full.key())
    nobody = request()
    for before in (
        b"POST %s HTTP/1.1\r\nAuthorization: Bearer %s\r\nX-Rest: " % (PATH, key.encode()),
        request(nobody, key=key)[: -len(nobody)],
    ):
        async with line(full) as caller:
            await caller.say(before, nobody)
            assert (await caller.hear()).status == 503
            assert (await caller.ask(nobody)).status == 401


async def test_a_key_that_is_revoked_is_not_known_by_its_bytes(full: Gateway) -> None:
    key = await known(full, await full.key())
    whole = request(key=key)
    async with line(full) as caller:
        for _ in range(2):
            assert (await caller.ask(whole)).status == 503
        name = key.partition(".")[0]
        now = core_of(full.engine).now()
        await core_of(full.engine).ledger.keys.revoke(name, now, "test")
        full.app.app_context.key_cache.forget(name)
        assert (await caller.ask(whole)).status == 401


async def test_another_key_over_the_same_connection_is_looked_at(full: Gateway) -> None:
    key, other = await known(full, await full.key()), await full.key(role=Role.WORKER)
    async with line(full) as caller:
        assert (await caller.ask(request(key=key))).status == 503
        assert (await caller.ask(request(key=other))).status == 403
        assert (await caller.ask(request(key=key))).status == 503


async def test_the_next_one_comes_in_when_there_is_room_for_its_tier(world: World) -> None:
    async with (
        gateway(world.engine, ServerSettings(submits=2, key_rate=0)) as served,
        line(served) as one,
    ):
        key = await known(served, await served.key(set_priority=True))
        low, high = (request(JOB % tier, key=key) for tier in (b"low", b"high"))
        with served.app.app_context.limiter.inside():
            for body, status in ((low, 503), (low, 503), (high, 202), (low, 503), (low, 503)):
                assert (await one.ask(body)).status == status
        assert (await one.ask(low)).status == 202


async def test_a_key_that_asks_too_often_hears_that_again(world: World) -> None:
    async with gateway(world.engine, ServerSettings(key_rate=6)) as served, line(served) as caller:
        whole = request(key=await served.key(set_priority=True))
        assert (await caller.ask(whole)).status == 202
        for _ in range(3):
            assert (await caller.ask(whole)).json["code"] == "too_many_requests"


async def test_a_body_that_is_too_large_is_so_the_second_time(world: World) -> None:
    server = ServerSettings(submits=1, key_rate=0, max_body=100)
    async with gateway(world.engine, server) as served, line(served) as caller:
        key = await known(served, await served.key())
        with served.app.app_context.limiter.inside():
            assert (await caller.ask(request(b"x" * 100, key=key))).status == 503
            assert (await caller.ask(request(b"x" * 101, key=key))).status == 413


async def test_a_connection_over_which_somebody_asks_again_is_not_idle(full: Gateway) -> None:
    key = await known(full, await full.key())
    async with line(full) as caller:
        for _ in range(2):
            assert (await caller.ask(request(key=key))).status == 503
        (connection,) = full.connections
        connection.timeout_keep_alive_handler()
        assert (await caller.ask(request(key=key))).status == 503
        connection.timeout_keep_alive_handler()
        connection.timeout_keep_alive_handler()
        assert await caller.is_over()


async def test_what_was_read_on_one_connection_is_known_on_all(full: Gateway) -> None:
    """Whoever was let in the last time is refused as cheaply as who was not."""
    key = await known(full, await full.key())
    async with line(full) as first, line(full) as second:
        assert (await first.ask(request(key=key))).status == 503
        assert (await second.ask(LIVE)).status == 200
        assert (await second.ask(request(key=key))).status == 503
        assert (await second.ask(request())).status == 401


async def test_who_wants_no_more_than_one_answer_is_known_by_nothing(full: Gateway) -> None:
    key = await known(full, await full.key())
    for _ in range(2):
        async with line(full) as caller:
            assert (await caller.ask(request(key=key))).status == 503
            assert (await caller.ask(request(JOB, b"Connection: close", key=key))).status == 503
            assert await caller.is_over()


# --- before they were told to --------------------------------------------------------------------
@pytest.fixture
async def still(full: Gateway) -> Hands:
    """A clock of turns that stands still, and one that waits already."""
    clock = Hands()
    turns = full.app.app_context.turns = RetryPacer(clock)
    turns.wait(Nobody(), 1)
    while not turns.wait(Nobody(), 1):
        pass
    return clock


class Nobody:
    def go_on(self) -> None: ...


async def test_who_asks_again_at_once_is_heard_when_it_is_their_turn(
    full: Gateway, still: Hands
) -> None:
    key = await known(full, await full.key())
    whole = request(key=key)
    async with line(full) as caller, line(full) as other:
        assert (await caller.ask(whole)).status == 503, "the first time"
        await caller.say(whole[:50], whole[50:] + whole)
        heard = asyncio.create_task(caller.hear())
        assert (await other.ask(whole)).status == 503, "and those who did not ask before"
        assert (await other.ask(LIVE)).status == 200, "and what is no submit"
        assert not heard.done()
        still.now += 1
        full.app.app_context.turns.call()
        assert [(await heard).status, (await caller.hear()).status] == [503, 503]


async def test_what_is_kept_for_later_is_not_read_without_end(full: Gateway, still: Hands) -> None:
    key = await known(full, await full.key())
    large = request(b"x" * (1 << 20), key=key)
    async with line(full) as caller:
        assert (await caller.ask(request(key=key))).status == 503
        await caller.say(large)
        while not any(  # noqa: ASYNC110 - no event
            each.flow.read_paused for each in full.connections
        ):
            await asyncio.sleep(0)
        still.now += 1
        full.app.app_context.turns.call()
        assert (await caller.hear()).status == 503


async def test_who_left_before_their_turn_is_forgotten(full: Gateway, still: Hands) -> None:
    key = await known(full, await full.key())
    async with line(full) as caller:
        assert (await caller.ask(request(key=key))).status == 503
        await caller.say(request(key=key))
    while full.connections:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)
    still.now += 1
    full.app.app_context.turns.call()
