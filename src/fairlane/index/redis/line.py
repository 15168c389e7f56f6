"""One connection on which many ask at once: a question is sent without waiting for the answers to
those before it, and answers come in the order of the questions."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection, ConnectionPool

Word = str | int | bytes

pack: Callable[[tuple[Word, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class Line:
    def __init__(self, pool: ConnectionPool, answer_within: float) -> None:
        self._pool, self._answer_within = pool, answer_within
        self._connection: AbstractConnection | None = None
        self._connecting = asyncio.Lock()
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._reader: asyncio.Task[None] | None = None

    async def ask(self, *words: Word) -> Any:
        """The answer. Raises what the server says, or that it is away: whether it has done what it
        was asked is not known then. A caller that goes away leaves its answer unread."""
        connection = self._connection or await self._connected()
        answer = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        if self._reader is None:
            self._reader = asyncio.create_task(self._read(connection))
        try:
            await connection.send_packed_command(pack(words), check_health=False)
        except (exceptions.RedisError, OSError) as error:
            await self._lose(connection, error)
        return await answer

    async def leave(self) -> None:
        """The next question goes to whichever server is found then."""
        if self._connection is not None:
            away = exceptions.ConnectionError("the server is not the one to talk to any more")
            await self._lose(self._connection, away)

    async def close(self) -> None:
        reader, connection = self._reader, self._connection
        if reader is not None:
            reader.cancel()
        if connection is not None:
            await self._lose(connection, exceptions.ConnectionError("the index is closed"))
        await self._pool.aclose()

    async def _connected(self) -> AbstractConnection:
        async with self._connecting:
            if self._connection is None:
                found: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
                self._connection = found
            return self._connection

    async def _read(self, connection: AbstractConnection) -> None:
        """As long as somebody waits for an answer."""
        try:
            while self._asked:
                try:
                    async with asyncio.timeout(self._answer_within):
                        found = await connection.read_response(timeout=math.inf)
                except exceptions.ResponseError as refusal:
                    _tell(self._asked.popleft(), refusal)
                else:
                    _tell(self._asked.popleft(), found)
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            await self._lose(connection, error)
        finally:
            if self._reader is asyncio.current_task():
                self._reader = None

    async def _lose(self, connection: AbstractConnection, error: Exception) -> None:
        """Nobody will be answered on this connection any more."""
        if self._connection is connection:
            self._connection = self._reader = None
            asked, self._asked = self._asked, deque()
            away = exceptions.ConnectionError(str(error))
            for answer in asked:
                _tell(answer, away)
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)


def _tell(answer: asyncio.Future[Any], found: Any) -> None:
    if answer.done():  # nobody waits for it
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
