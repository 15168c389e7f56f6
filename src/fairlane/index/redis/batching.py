"""Request batching: calls that arrive while one is in flight are sent together in the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Send = Callable[[int, Sequence[Item]], Awaitable[Any]]
"""Sends one call with these items. The int is the current time in microseconds."""


class PendingBatch(Generic[Item]):
    def __init__(self) -> None:
        self.now, self.size, self.items = 0, 0, list[Item]()
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(_mark_retrieved)


class Batcher(Generic[Item]):
    """Sends one call at a time. The size of a call is at most `most`, unless a single caller asks
    for more. The limit lets Redis serve other clients between two calls."""

    def __init__(self, send: Send[Item], most: int) -> None:
        self._send, self._max_size = send, most
        self._waiting: deque[PendingBatch[Item]] = deque()
        self._in_flight = False

    async def call(
        self, now: int, items: Sequence[Item], size: int | None = None
    ) -> tuple[Any, int]:
        """Send these items, alone or in a batch. Returns the answer of the call and the index of
        the first of these items in it. Raises what the call raises. `size` defaults to the number
        of items."""
        if self._in_flight:
            batch, place = self._join_batch(now, items, len(items) if size is None else size)
            return await asyncio.shield(batch.done), place
        self._in_flight = True
        try:
            return await self._send(now, items), 0
        finally:
            self._send_next()

    def _join_batch(
        self, now: int, items: Sequence[Item], size: int
    ) -> tuple[PendingBatch[Item], int]:
        if not self._waiting or self._waiting[-1].size + size > self._max_size:
            self._waiting.append(PendingBatch())
        batch = self._waiting[-1]
        place = len(batch.items)
        batch.now, batch.size = max(now, batch.now), batch.size + size
        batch.items += items
        return batch, place

    def _send_next(self) -> None:
        if self._waiting:
            self._running = asyncio.create_task(self._run(self._waiting.popleft()))
        else:
            self._in_flight = False

    async def _run(self, batch: PendingBatch[Item]) -> None:
        try:
            answer = await self._send(batch.now, batch.items)
        except Exception as error:  # noqa: BLE001 - raised to every caller of the batch
            batch.done.set_exception(error)
        else:
            batch.done.set_result(answer)
        finally:
            self._send_next()


def _mark_retrieved(done: asyncio.Future[Any]) -> None:
    """Mark the exception as retrieved: all callers may have been cancelled."""
    if not done.cancelled():
        done.exception()
