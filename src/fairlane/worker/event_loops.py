"""Two event loops: tasks run on the caller's loop, the worker protocol on a loop in its own thread.
A task that blocks its loop does not cost the worker its leases."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any


class LoopCalls:
    """Calls functions on a loop from any thread, in order. Many calls wake the loop once. On the
    loop itself they run at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._armed = False

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        if _running_loop() is self.loop:
            self._make()
            function(*arguments)
            return
        if self.loop.is_closed():
            return
        self._waiting.append((function, arguments))
        if not self._armed:
            self._armed = True
            self.loop.call_soon_threadsafe(self._make)

    def _make(self) -> None:
        self._armed = False  # first: a call that arrives meanwhile wakes the loop again
        while self._waiting:
            function, arguments = self._waiting.popleft()
            function(*arguments)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class LoopThread:
    """An event loop in a thread, for one coroutine."""

    def __init__(self, like: asyncio.AbstractEventLoop) -> None:
        self.loop = _new_loop(like)
        self._thread = threading.Thread(target=self._run, name="fairlane-protocol", daemon=True)

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the coroutine on that loop to its end. If it is cancelled, it returns when the work
        has ended."""
        here = asyncio.get_running_loop()
        over: asyncio.Future[None] = here.create_future()
        doing: list[asyncio.Task[None]] = []

        def begin() -> None:
            doing.append(self.loop.create_task(work))
            doing[0].add_done_callback(lambda done: here.call_soon_threadsafe(_pass_on, done, over))

        self._thread.start()
        self.loop.call_soon_threadsafe(begin)
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError:
            if not over.done():
                self.loop.call_soon_threadsafe(_cancel, doing)
                await asyncio.wait((over,))
            raise
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()


def _cancel(doing: list[asyncio.Task[None]]) -> None:
    doing[0].cancel()


def _pass_on(done: asyncio.Task[None], over: asyncio.Future[None]) -> None:
    if over.done():
        return
    if done.cancelled():
        over.cancel()
    elif (error := done.exception()) is not None:
        over.set_exception(error)
    else:
        over.set_result(None)


def _new_loop(like: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    if type(like).__module__.partition(".")[0] == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
