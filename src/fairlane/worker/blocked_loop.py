"""A watchdog: warns when an async function blocks the event loop of the tasks."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from fairlane.worker.handlers import Handler

log = logging.getLogger("fairlane.worker")

LOOK_SECONDS = 1.0
BLOCKED_LOOKS = 3
"""Checks without an answer after which the loop counts as blocked. Checks are counted, not seconds:
a process that was stopped and continues has not blocked its loop."""

WhoRuns = Callable[["asyncio.Task[object]"], "Handler | None"]


class BlockedLoopWatch:
    """A thread that checks once a second whether the loop still runs. Create it on that loop."""

    def __init__(self, handler_of: WhoRuns, look_seconds: float = LOOK_SECONDS) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._handler_of, self._look_seconds = handler_of, look_seconds
        self._answered, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="fairlane-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        missed = 0
        self._ask()
        while not self._stop.wait(self._look_seconds):
            if self._answered.is_set():
                missed = 0
                self._ask()
                continue
            missed += 1
            if missed == BLOCKED_LOOKS:
                self._warn()

    def _ask(self) -> None:
        self._answered.clear()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._answered.set)

    def _warn(self) -> None:
        task = asyncio.current_task(self._loop)
        handler = self._handler_of(task) if task is not None else None
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the documented way
        seconds = BLOCKED_LOOKS * self._look_seconds
        if handler is None:
            what = f"something at {_place(frame)}"
        else:
            own = _frame_of(handler, frame)
            what = f"task function {handler.name} ({handler.task_type}, at {_place(own or frame)})"
        log.warning(
            "%s has blocked the event loop for %g s: no other async task runs meanwhile, and this "
            "one cannot be cancelled. Make it a plain def, which runs in a thread, or await "
            "asyncio.to_thread(…) around the call that blocks",
            what,
            seconds,
        )


def _frame_of(handler: Handler, frame: FrameType | None) -> FrameType | None:
    """The frame of the task's own function, below the functions that it called."""
    code = getattr(inspect.unwrap(handler.function), "__code__", None)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def _place(frame: FrameType | None) -> str:
    if frame is None:
        return "an unknown place"
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
