"""Batching: calls that arrive while one is under way are sent together afterwards."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Send = Callable[[int, Sequence[Item]], Awaitable[Any]]
"""Makes one call, at a time, with these items."""


class PendingBatch(Generic[Item]):
    def __init__(self) -> None:
        self.now, self.size, self.items = 0, 0, list[Item]()
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(_is_heard)


class Batcher(Generic[Item]):
    """No call grows beyond `most`, unless one asks for more by itself: others are served in
    between."""

    def __init__(self, send: Send[Item], most: int) -> None:
        self._send, self._most = send, most
        self._waiting: deque[PendingBatch[Item]] = deque()
        self._under_way = False

    async def call(
        self, now: int, items: Sequence[Item], size: int | None = None
    ) -> tuple[Any, int]:
        """What a call with these items answers, and the place of the first of them in it. Raises
        what it raises. Their size is their number, unless said otherwise."""
        if self._under_way:
            batch, place = self._with_others(now, items, len(items) if size is None else size)
            return await asyncio.shield(batch.done), place
        self._under_way = True
        try:
            return await self._send(now, items), 0
        finally:
            self._go_on()

    def _with_others(
        self, now: int, items: Sequence[Item], size: int
    ) -> tuple[PendingBatch[Item], int]:
        if not self._waiting or self._waiting[-1].size + size > self._most:
            self._waiting.append(PendingBatch())
        batch = self._waiting[-1]
        place = len(batch.items)
        batch.now, batch.size = max(now, batch.now), batch.size + size
        batch.items += items
        return batch, place

    def _go_on(self) -> None:
        if self._waiting:
            self._running = asyncio.create_task(self._run(self._waiting.popleft()))
        else:
            self._under_way = False

    async def _run(self, batch: PendingBatch[Item]) -> None:
        try:
            answer = await self._send(batch.now, batch.items)
        except Exception as error:  # noqa: BLE001 - everybody who takes part hears of it
            batch.done.set_exception(error)
        else:
            batch.done.set_result(answer)
        finally:
            self._go_on()


def _is_heard(done: asyncio.Future[Any]) -> None:
    """Those who wanted to know may have gone away."""
    if not done.cancelled():
        done.exception()
