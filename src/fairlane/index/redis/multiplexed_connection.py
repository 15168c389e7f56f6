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

RECONNECT_PAUSE_SECONDS = 0.1
"""The pause between two attempts to reach a server that does not answer."""

pack: Callable[[tuple[Word, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class MultiplexedConnection:
    """One connection shared by all tasks of the process. A caller reads answers, for itself and for
    the callers before it, until its own has arrived; a background task reads the rest."""

    def __init__(self, pool: ConnectionPool, answer_within: float) -> None:
        self._pool, self._answer_within = pool, answer_within
        self._connection: AbstractConnection | None = None
        self._connecting: asyncio.Task[AbstractConnection] | None = None
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._has_reader = False
        self._reader: asyncio.Task[None] | None = None
        self._reconnecting: asyncio.Task[None] | None = None

    async def ask(self, *words: Word) -> Any:
        """Send a command and return its answer. Raises the server's error, or ConnectionError if
        the server is unavailable: then it is unknown whether the command was executed. The answer
        to a cancelled caller is read and discarded."""
        packed = pack(words)  # an error here must not leave a pending answer
        connection = await self._connected()
        if self._connection is not connection:  # lost again before this task went on
            raise exceptions.ConnectionError(LOST)
        answer = asyncio.get_running_loop().create_future()
        self._pending.append(answer)
        try:
            await self._send(connection, packed)
            if not self._has_reader and not answer.done():
                await self._read_until(answer, connection)
            return await answer
        finally:
            answer.cancel()  # the caller was cancelled: discard a late answer

    async def leave(self) -> None:
        """Disconnect. The next command connects again, to the server that is primary then."""
        if self._connection is not None:
            away = exceptions.ConnectionError("the server is not the one to talk to any more")
            await self._disconnect(self._connection, away)

    async def close(self) -> None:
        if self._connecting is not None:
            await end_all([self._connecting])
        await end(self._reconnecting)
        if self._connection is not None:
            await self._disconnect(
                self._connection, exceptions.ConnectionError("the index is closed")
            )
        if self._reader is not None:
            await asyncio.wait([self._reader])
        await self._pool.aclose()

    async def _connected(self) -> AbstractConnection:
        connection = self._connection
        if connection is None and self._reconnecting is not None and not self._reconnecting.done():
            raise exceptions.ConnectionError(SILENT)
        if connection is not None and (self._pending or await _is_alive(connection)):
            return connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect(connection))
            self._connecting.add_done_callback(_mark_retrieved)
        return await asyncio.shield(self._connecting)

    async def _connect(self, dead: AbstractConnection | None) -> AbstractConnection:
        """One attempt for all waiting callers: if it fails, it fails for all of them."""
        if self._connection is not None and self._connection is dead:
            await self._disconnect(dead, exceptions.ConnectionError("closed by the server"))
        if self._connection is None:
            try:
                self._connection = await self._new_connection()
            except exceptions.TimeoutError:
                self._start_reconnecting()
                raise
        return self._connection

    async def _new_connection(self) -> AbstractConnection:
        """Open a new connection object. A lost connection is not reused: tasks that still hold it
        must not use its successor. redis-py's own timeout applies to the handshake only. Afterwards
        this class sets the timeouts: redis-py uses `asyncio.wait_for`, which creates a task for
        each command and, before Python 3.12, may lose the cancellation of the caller."""
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        connection.socket_timeout = None
        return connection

    def _start_reconnecting(self) -> None:
        """The server does not answer: callers fail at once until a new connection is open."""
        if self._reconnecting is None or self._reconnecting.done():
            log.warning("Redis does not answer: a new connection is tried until it does")
            self._reconnecting = asyncio.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while self._connection is None:
            try:
                self._connection = await self._new_connection()
            except (exceptions.RedisError, OSError):
                await asyncio.sleep(RECONNECT_PAUSE_SECONDS)
        log.warning("Redis answers again")

    async def _send(self, connection: AbstractConnection, packed: bytes) -> None:
        if not connection.is_connected:  # redis-py would reconnect it and mix up the answers
            await self._disconnect(connection, exceptions.ConnectionError(LOST))
            return
        try:
            async with asyncio.timeout(self._answer_within):
                await connection.send_packed_command(packed, check_health=False)
        except TimeoutError:
            await self._disconnect(connection, exceptions.ConnectionError(SILENT))
            self._start_reconnecting()
        except (exceptions.RedisError, OSError) as error:
            await self._disconnect(connection, error)
        except BaseException:
            # The caller was cancelled while it was sending, and redis-py has closed the
            # connection: the answers to other callers will not arrive.
            await self._disconnect(connection, exceptions.ConnectionError(LOST))
            raise

    async def _read_until(
        self, answer: asyncio.Future[Any] | None, connection: AbstractConnection
    ) -> None:
        """Deliver answers until `answer` has arrived, or all pending ones if it is None."""
        if self._connection is not connection:  # lost before this task started
            return
        self._has_reader = True
        try:
            while self._connection is connection and self._pending:
                if answer is not None and answer.done():
                    break
                async with asyncio.timeout(self._answer_within):
                    await self._read_one(connection)
        except TimeoutError:
            await self._disconnect(connection, exceptions.ConnectionError(SILENT))
            self._start_reconnecting()
        except (exceptions.RedisError, OSError) as error:
            await self._disconnect(connection, error)
        finally:
            if self._connection is connection:
                self._has_reader = bool(self._pending)
                if self._pending:
                    self._reader = asyncio.create_task(self._read_until(None, connection))

    async def _read_one(self, connection: AbstractConnection) -> None:
        try:
            found = await connection.read_response(timeout=math.inf, disconnect_on_error=False)
        except exceptions.ResponseError as refusal:
            found = refusal
        if self._connection is connection:
            _resolve(self._pending.popleft(), found)

    async def _disconnect(self, connection: AbstractConnection, error: Exception) -> None:
        """Close the connection and fail all commands that wait for its answers."""
        if self._connection is not connection:
            return
        pending, self._pending = self._pending, deque()
        self._connection, self._has_reader = None, False
        away = exceptions.ConnectionError(str(error))
        for answer in pending:
            _resolve(answer, away)
        await connection.disconnect(nowait=True)


async def _is_alive(connection: AbstractConnection) -> bool:
    """Whether an unused connection is still open: readable without a request means closed."""
    try:
        return not await connection.can_read()
    except (exceptions.RedisError, OSError):
        return False


def _mark_retrieved(attempt: asyncio.Task[AbstractConnection]) -> None:
    """Mark the exception as retrieved: all callers may have been cancelled."""
    if not attempt.cancelled():
        attempt.exception()


def _resolve(answer: asyncio.Future[Any], found: Any) -> None:
    if answer.done():  # its caller was cancelled
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
