"""A multiplexed connection: requests are pipelined, and answers are matched in order."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection, ConnectionPool

from fairlane.background import end, end_all

log = logging.getLogger("fairlane")

Word = str | int | bytes

SILENT = "the server does not answer"
LOST = "the connection was lost"

REST = 0.1
"""Seconds between two tries to reach a server that is silent."""

pack: Callable[[tuple[Word, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class MultiplexedConnection:
    def __init__(self, pool: ConnectionPool, answer_within: float) -> None:
        self._pool, self._answer_within = pool, answer_within
        self._connection: AbstractConnection | None = None
        self._connecting: asyncio.Task[AbstractConnection] | None = None
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._is_read = False
        self._reader: asyncio.Task[None] | None = None
        self._return: asyncio.Task[None] | None = None

    async def ask(self, *words: Word) -> Any:
        """The answer. Raises what the server says, or that it is away: whether it has done what it
        was asked is not known then. A caller that goes away leaves its answer unread."""
        packed = pack(words)  # what cannot be sent must not wait for an answer
        connection = await self._connected()
        if self._connection is not connection:  # lost again before this task went on
            raise exceptions.ConnectionError(LOST)
        answer = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        try:
            await self._send(connection, packed)
            if not self._is_read and not answer.done():
                await self._read_until(answer, connection)
            return await answer
        finally:
            answer.cancel()  # if it is not there yet, nobody wants it any more

    async def leave(self) -> None:
        """The next question goes to whichever server is found then."""
        if self._connection is not None:
            away = exceptions.ConnectionError("the server is not the one to talk to any more")
            await self._lose(self._connection, away)

    async def close(self) -> None:
        if self._connecting is not None:
            await end_all([self._connecting])
        await end(self._return)
        if self._connection is not None:
            await self._lose(self._connection, exceptions.ConnectionError("the index is closed"))
        if self._reader is not None:
            await asyncio.wait([self._reader])
        await self._pool.aclose()

    async def _connected(self) -> AbstractConnection:
        connection = self._connection
        if connection is None and self._return is not None and not self._return.done():
            raise exceptions.ConnectionError(SILENT)
        if connection is not None and (self._asked or await _is_alive(connection)):
            return connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect(connection))
            self._connecting.add_done_callback(_is_heard)
        return await asyncio.shield(self._connecting)

    async def _connect(self, dead: AbstractConnection | None) -> AbstractConnection:
        """One attempt for all who wait: if it fails, all of them hear of it."""
        if self._connection is not None and self._connection is dead:
            await self._lose(dead, exceptions.ConnectionError("closed by the server"))
        if self._connection is None:
            try:
                self._connection = await self._new_connection()
            except exceptions.TimeoutError:
                self._come_back()
                raise
        return self._connection

    async def _new_connection(self) -> AbstractConnection:
        """One that was never used: tasks that still wait on a lost one must not meet its successor
        under the same name. Its own limit is for the answers with which it begins. Afterwards the
        limits are set here: redis-py limits what it sends with `asyncio.wait_for`, which makes a
        task for each question and, before Python 3.12, may lose the cancellation of the caller."""
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        connection.socket_timeout = None
        return connection

    def _come_back(self) -> None:
        """The server is silent: nobody waits for it until it answers."""
        if self._return is None or self._return.done():
            log.warning("Redis does not answer: a new connection is tried until it does")
            self._return = asyncio.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while self._connection is None:
            try:
                self._connection = await self._new_connection()
            except (exceptions.RedisError, OSError):
                await asyncio.sleep(REST)
        log.warning("Redis answers again")

    async def _send(self, connection: AbstractConnection, packed: bytes) -> None:
        if not connection.is_connected:  # redis-py would connect it again, under the old answers
            await self._lose(connection, exceptions.ConnectionError(LOST))
            return
        try:
            async with asyncio.timeout(self._answer_within):
                await connection.send_packed_command(packed, check_health=False)
        except TimeoutError:
            await self._lose(connection, exceptions.ConnectionError(SILENT))
            self._come_back()
        except (exceptions.RedisError, OSError) as error:
            await self._lose(connection, error)
        except BaseException:
            # The caller goes away in the middle of its question, and redis-py has closed the
            # connection: the answers to the others will not come.
            await self._lose(connection, exceptions.ConnectionError(LOST))
            raise

    async def _read_until(
        self, answer: asyncio.Future[Any] | None, connection: AbstractConnection
    ) -> None:
        """Tell everybody their answers until this one is there, or all if it is None."""
        if self._connection is not connection:  # lost before this began: its successor is unread
            return
        self._is_read = True
        try:
            while self._connection is connection and self._asked:
                if answer is not None and answer.done():
                    break
                async with asyncio.timeout(self._answer_within):
                    await self._read_one(connection)
        except TimeoutError:
            await self._lose(connection, exceptions.ConnectionError(SILENT))
            self._come_back()
        except (exceptions.RedisError, OSError) as error:
            await self._lose(connection, error)
        finally:
            if self._connection is connection:
                self._is_read = bool(self._asked)
                if self._asked:
                    self._reader = asyncio.create_task(self._read_until(None, connection))

    async def _read_one(self, connection: AbstractConnection) -> None:
        try:
            found = await connection.read_response(timeout=math.inf, disconnect_on_error=False)
        except exceptions.ResponseError as refusal:
            found = refusal
        if self._connection is connection:
            _tell(self._asked.popleft(), found)

    async def _lose(self, connection: AbstractConnection, error: Exception) -> None:
        """Nobody will be answered on this connection any more."""
        if self._connection is not connection:
            return
        asked, self._asked = self._asked, deque()
        self._connection, self._is_read = None, False
        away = exceptions.ConnectionError(str(error))
        for answer in asked:
            _tell(answer, away)
        await connection.disconnect(nowait=True)


async def _is_alive(connection: AbstractConnection) -> bool:
    """Whether the server has not closed a connection on which nobody waits."""
    try:
        return not await connection.can_read()
    except (exceptions.RedisError, OSError):
        return False


def _is_heard(attempt: asyncio.Task[AbstractConnection]) -> None:
    """Whoever wanted to know may have gone away."""
    if not attempt.cancelled():
        attempt.exception()


def _tell(answer: asyncio.Future[Any], found: Any) -> None:
    if answer.done():  # nobody waits for it
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
