"""Many ask on one connection, and small calls are made together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection

from fairlane.index.redis.batching import Batcher
from fairlane.index.redis.multiplexed_connection import MultiplexedConnection

MOST = 10
LONGER_THAN_BUFFERS = 30_000_000
MOMENTS = 40
"""Turns of the event loop in which a connection is made, and the first answer is there."""


@pytest.fixture
async def line(redis_url: str) -> AsyncIterator[MultiplexedConnection]:
    pool = BlockingConnectionPool.from_url(
        redis_url, max_connections=1, protocol=2, socket_timeout=5
    )
    line = MultiplexedConnection(pool, 5)
    yield line
    await line.close()


# --- one connection ----------------------------------------------------------------------------
async def test_everybody_gets_their_own_answer(line: MultiplexedConnection) -> None:
    answers = await asyncio.gather(*[line.ask("ECHO", n) for n in range(200)])
    assert answers == [str(n).encode() for n in range(200)]


async def test_a_refusal_is_heard_by_who_asked_and_nobody_else(line: MultiplexedConnection) -> None:
    questions = [("ECHO", "first"), ("NONSENSE",), ("ECHO", "last")]
    answers = await asyncio.gather(*[line.ask(*each) for each in questions], return_exceptions=True)
    assert [answers[0], answers[2]] == [b"first", b"last"]
    assert isinstance(answers[1], exceptions.ResponseError)


async def test_who_goes_away_takes_nobody_elses_answer(line: MultiplexedConnection) -> None:
    gone = asyncio.create_task(line.ask("ECHO", "gone"))
    stays = asyncio.create_task(line.ask("ECHO", "stays"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == b"stays"
    assert await line.ask("ECHO", "later") == b"later"


@pytest.mark.parametrize("turns", range(8))
async def test_who_goes_away_at_any_moment_takes_nobody_elses_answer(
    line: MultiplexedConnection, turns: int
) -> None:
    """I26: and is gone, whatever it was doing."""
    await line.ask("PING")
    for _ in range(10):
        gone = asyncio.create_task(line.ask("ECHO", "gone"))
        for _ in range(turns):
            await asyncio.sleep(0)
        asked_to_go = gone.cancel()
        later = await asyncio.gather(*[line.ask("ECHO", n) for n in range(3)])
        assert later == [b"0", b"1", b"2"]
        assert gone.cancelled() == asked_to_go


@pytest.mark.parametrize("others", [0, 3])
async def test_who_goes_away_in_the_middle_of_a_question_leaves_no_wrong_answers(
    line: MultiplexedConnection, others: int
) -> None:
    """I26: the server has heard half of it. Nobody is told what was meant for others."""
    await line.ask("PING")
    gone = asyncio.create_task(line.ask("ECHO", b"-" * LONGER_THAN_BUFFERS))
    await asyncio.sleep(0)
    asked = [asyncio.create_task(line.ask("ECHO", n)) for n in range(others)]
    await asyncio.sleep(0)
    gone.cancel()
    heard = await asyncio.gather(gone, *asked, return_exceptions=True)
    assert isinstance(heard.pop(0), asyncio.CancelledError)
    assert all(isinstance(each, exceptions.ConnectionError) for each in heard)
    assert await line.ask("ECHO", "later") == b"later"
    while (await line.ask("CLIENT", "LIST")).count(b"\n") > 1:
        pass  # what was on its way is still being sent


@pytest.mark.parametrize("turns", range(0, MOMENTS, 2))
async def test_a_server_that_is_left_at_any_moment_holds_nobody_up(
    line: MultiplexedConnection, turns: int
) -> None:
    """I28: also who has just been connected is answered, or hears that the server is away."""
    async with asyncio.timeout(10):
        for more in (0, 1) * 10:
            asked = [asyncio.create_task(line.ask("ECHO", n)) for n in range(3)]
            for _ in range(turns + more):
                await asyncio.sleep(0)
            await line.leave()
            for n, answer in enumerate(await asyncio.gather(*asked, return_exceptions=True)):
                assert isinstance(answer, exceptions.ConnectionError) or answer == b"%d" % n
            assert await line.ask("ECHO", "later") == b"later"
            await line.leave()


async def test_a_lost_connection_is_heard_by_all_and_made_anew(line: MultiplexedConnection) -> None:
    number = await line.ask("CLIENT", "ID")
    questions = [("CLIENT", "KILL", "ID", number, "SKIPME", "no"), ("ECHO", "lost")]
    answers = await asyncio.gather(*[line.ask(*each) for each in questions], return_exceptions=True)
    assert isinstance(answers[1], exceptions.ConnectionError)
    assert await line.ask("ECHO", "again") == b"again"


async def test_what_cannot_be_sent_takes_nobody_elses_answer(line: MultiplexedConnection) -> None:
    answers = await asyncio.gather(
        line.ask("ECHO", "first"),
        line.ask("ECHO", "\ud800"),
        line.ask("ECHO", "last"),
        return_exceptions=True,
    )
    assert [answers[0], answers[2]] == [b"first", b"last"]
    assert isinstance(answers[1], Exception)


async def test_a_server_that_takes_no_connection_is_tried_once_for_all_who_wait() -> None:
    pool = Refusing(max_connections=1)
    line = MultiplexedConnection(pool, 5)
    answers = await asyncio.gather(*[line.ask("PING") for _ in range(10)], return_exceptions=True)
    assert all(isinstance(answer, exceptions.ConnectionError) for answer in answers)
    assert pool.attempts == 1
    await line.close()


class Refusing(BlockingConnectionPool):
    attempts = 0

    def make_connection(self) -> AbstractConnection:
        self.attempts += 1
        return Refused()


class Refused(Connection):
    async def connect(self) -> None:
        await asyncio.sleep(0)
        raise exceptions.ConnectionError("nobody is there")


# --- calls made together -----------------------------------------------------------------------
class Sent:
    """What was sent, each call held back until it may go on."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[str]]] = []
        self.may_go_on = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, now: int, words: Sequence[str]) -> list[str]:
        self.calls.append((now, list(words)))
        await self.may_go_on.wait()
        if self.error is not None and len(self.calls) > 1:
            raise self.error
        return [f"answer to {word}" for word in words]


Answer = tuple[list[str], int]


async def some_calls(together: Batcher[str], n: int) -> list[asyncio.Task[Answer]]:
    tasks = [asyncio.create_task(together.call(at, [f"word-{at}"])) for at in range(n)]
    await asyncio.sleep(0)
    return tasks


async def test_calls_that_come_while_one_is_under_way_go_together_in_their_order() -> None:
    sent = Sent()
    tasks = await some_calls(Batcher(sent.send, MOST), 4)
    sent.may_go_on.set()
    answers = await asyncio.gather(*tasks)
    assert sent.calls == [(0, ["word-0"]), (3, ["word-1", "word-2", "word-3"])]
    own = [answer[place] for answer, place in answers]
    assert own == [f"answer to word-{number}" for number in range(4)]


async def test_everybody_hears_of_the_error_of_their_call_only() -> None:
    sent = Sent()
    sent.error = exceptions.ConnectionError("away")
    tasks = await some_calls(Batcher(sent.send, MOST), 3)
    sent.may_go_on.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes == [(["answer to word-0"], 0), sent.error, sent.error]


async def test_who_goes_away_does_not_keep_others_from_being_served() -> None:
    sent = Sent()
    together = Batcher(sent.send, MOST)
    first, second, third = await some_calls(together, 3)
    first.cancel()
    second.cancel()
    sent.may_go_on.set()
    await third
    assert sent.calls[1] == (2, ["word-1", "word-2"])
    await together.call(9, ["afterwards"])
    assert sent.calls[2] == (9, ["afterwards"])


async def test_no_call_grows_without_bound() -> None:
    sent = Sent()
    together = Batcher(sent.send, MOST)
    tasks = [asyncio.create_task(together.call(0, ["word"] * (MOST // 2))) for _ in range(6)]
    await asyncio.sleep(0)
    sent.may_go_on.set()
    await asyncio.gather(*tasks)
    assert [len(words) for _, words in sent.calls] == [MOST // 2, MOST, MOST, MOST // 2]
