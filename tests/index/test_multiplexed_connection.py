"""Many ask on one connection, and small calls are made together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection

from fairlane.index.redis.batching import Batcher
from fairlane.index.redis.multiplexed_connection import MultiplexedConnection

MOST = 10


@pytest.fixture
async def line(redis_url: str) -> AsyncIterator[MultiplexedConnection]:
    line = MultiplexedConnection(
        BlockingConnectionPool.from_url(redis_url, max_connections=1, protocol=2), 5
    )
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

    async def get_connection(self, *_: object, **__: object) -> AbstractConnection:
        self.attempts += 1
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
