"""Calls that come while one is under way are made together, as soon as it is over: many small ones
cost little more than a large one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from fairlane.index.redis.line import Word

MOST = 3_000
"""Words of one call: others are served in between."""

Send = Callable[[int, list[Word]], Awaitable[object]]
"""Makes one call, at a time, with these words."""


class Batch:
    def __init__(self) -> None:
        self.now, self.words = 0, list[Word]()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(_is_heard)


class Together:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[Batch] = deque()
        self._under_way = False

    async def call(self, now: int, words: list[Word]) -> None:
        """Returns when a call with these words is over, or raises what it raised."""
        if self._under_way:
            await asyncio.shield(self._with_others(now, words))
            return
        self._under_way = True
        try:
            await self._send(now, words)
        finally:
            self._go_on()

    def _with_others(self, now: int, words: list[Word]) -> asyncio.Future[None]:
        if not self._waiting or len(self._waiting[-1].words) + len(words) > MOST:
            self._waiting.append(Batch())
        batch = self._waiting[-1]
        batch.now = max(now, batch.now)
        batch.words += words
        return batch.done

    def _go_on(self) -> None:
        if self._waiting:
            self._running = asyncio.create_task(self._run(self._waiting.popleft()))
        else:
            self._under_way = False

    async def _run(self, batch: Batch) -> None:
        try:
            await self._send(batch.now, batch.words)
        except Exception as error:  # noqa: BLE001 - everybody who takes part hears of it
            batch.done.set_exception(error)
        else:
            batch.done.set_result(None)
        finally:
            self._go_on()


def _is_heard(done: asyncio.Future[None]) -> None:
    """Those who wanted to know may have gone away."""
    if not done.cancelled():
        done.exception()
