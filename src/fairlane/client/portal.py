"""An event loop in a thread, for programs without one: anyio's blocking portal."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

Out = TypeVar("Out")


class Portal:
    """It ends with `close`, or with the program."""

    def __init__(self) -> None:
        thread = start_blocking_portal()
        self._portal = thread.__enter__()
        self._stop = weakref.finalize(self, _stop, self._portal, thread)

    def run(self, work: Callable[..., Awaitable[Out]], /, *args: Any, **more: Any) -> Out:
        """What `work` gives. If this thread is interrupted (Ctrl-C), the work is cancelled."""
        future = self._portal.start_task_soon(lambda: work(*args, **more))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancels what other threads still wait for. A second call does nothing."""
        self._stop()

    @property
    def closed(self) -> bool:
        return not self._stop.alive


def _stop(portal: BlockingPortal, thread: AbstractContextManager[BlockingPortal]) -> None:
    with suppress(RuntimeError):  # it has ended
        portal.call(portal.stop, True)  # noqa: FBT003 - anyio's argument: cancel_remaining
        thread.__exit__(None, None, None)
