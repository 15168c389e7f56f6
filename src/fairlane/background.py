"""Background tasks of the event loop, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

CANCEL_AGAIN_SECONDS = 1.0
"""Seconds that a cancelled task has to end before it is cancelled again."""


async def end(work: asyncio.Task[Any] | None) -> None:
    """Cancels the task, if there is one, and waits until it has ended. Raises the task's error."""
    if work is not None:
        await end_all([work])
        if not work.cancelled():
            work.result()


async def end_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels all tasks and waits until they have ended, however they end.

    One cancellation is not enough: before Python 3.12 `asyncio.wait_for`, with which redis-py
    sends, loses a cancellation that arrives at the same moment as its result. A loop that lost it
    would run for ever."""
    known = list(tasks)
    left = {task for task in known if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
    for task in known:
        if not task.cancelled():
            task.exception()  # marks the error as retrieved, so asyncio does not warn
