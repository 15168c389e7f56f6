"""Many ask on one connection, and small calls are made together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis import exceptions
from redis.asyncio import BlockingConnectionPool

from fairlane.index.redis.line import Line, Word
from fairlane.index.redis.together import MOST, Together


@pytest.fixture
async def line(redis_url: str) -> AsyncIterator[Line]:
    line = Line(BlockingConnectionPool.from_url(redis_url, max_connections=1, protocol=2), 5)
    yield line
    await line.close()


# --- one connection ----------------------------------------------------------------------------
async def test_everybody_gets_their_own_answer(line: Line) -> None:
    answers = await asyncio.gather(*[line.ask("ECHO", n) for n in range(200)])
    assert answers == [str(n).encode() for n in range(200)]


async def test_a_refusal_is_heard_by_who_asked_and_nobody_else(line: Line) -> None:
    questions = [("ECHO", "first"), ("NONSENSE",), ("ECHO", "last")]
    answers = await asyncio.gather(*[line.ask(*each) for each in questions], return_exceptions=True)
    assert [answers[0], answers[2]] == [b"first", b"last"]
    assert isinstance(answers[1], exceptions.ResponseError)


async def test_who_goes_away_takes_nobody_elses_answer(line: Line) -> None:
    gone = asyncio.create_task(line.ask("ECHO", "gone"))
    stays = asyncio.create_task(line.ask("ECHO", "stays"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == b"stays"
    assert await line.ask("ECHO", "later") == b"later"


async def test_a_lost_connection_is_heard_by_all_and_made_anew(line: Line) -> None:
    number = await line.ask("CLIENT", "ID")
    questions = [("CLIENT", "KILL", "ID", number, "SKIPME", "no"), ("ECHO", "lost")]
    answers = await asyncio.gather(*[line.ask(*each) for each in questions], return_exceptions=True)
    assert isinstance(answers[1], exceptions.ConnectionError)
    assert await line.ask("ECHO", "again") == b"again"


# --- calls made together -----------------------------------------------------------------------
class Sent:
    """What was sent, each call held back until it may go on."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[Word]]] = []
        self.may_go_on = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, now: int, words: list[Word]) -> None:
        self.calls.append((now, words))
        await self.may_go_on.wait()
        if self.error is not None and len(self.calls) > 1:
            raise self.error


async def some_calls(together: Together, n: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(together.call(at, [f"word-{at}"])) for at in range(n)]
    await asyncio.sleep(0)
    return tasks


async def test_calls_that_come_while_one_is_under_way_go_together_in_their_order() -> None:
    sent = Sent()
    tasks = await some_calls(Together(sent.send), 4)
    sent.may_go_on.set()
    await asyncio.gather(*tasks)
    assert sent.calls == [(0, ["word-0"]), (3, ["word-1", "word-2", "word-3"])]


async def test_everybody_hears_of_the_error_of_their_call_only() -> None:
    sent = Sent()
    sent.error = exceptions.ConnectionError("away")
    tasks = await some_calls(Together(sent.send), 3)
    sent.may_go_on.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes == [None, sent.error, sent.error]


async def test_who_goes_away_does_not_keep_others_from_being_served() -> None:
    sent = Sent()
    together = Together(sent.send)
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
    together = Together(sent.send)
    tasks = [asyncio.create_task(together.call(0, ["word"] * (MOST // 2))) for _ in range(6)]
    await asyncio.sleep(0)
    sent.may_go_on.set()
    await asyncio.gather(*tasks)
    assert [len(words) for _, words in sent.calls] == [MOST // 2, MOST, MOST, MOST // 2]
