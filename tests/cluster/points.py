"""Places on both sides of every verb of the two stores, where a process may die, stand still or be
held."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

What = Literal["die", "stop", "hold"]
NUMBERS = {"die": signal.SIGKILL, "stop": signal.SIGSTOP}


class Points:
    """Remembers the places that were passed. Where something is planned, `tell` hears that the
    place was reached; then the process is gone, or stands still, or the one call waits until
    `let_go`. It dies or stops once, and holds everybody."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self.passed: list[str] = []
        self._tell = tell
        self._plans: dict[str, What] = {}
        self._gates: dict[str, asyncio.Event] = {}

    def plan(self, point: str, what: What) -> None:
        self._plans[point] = what
        self._gates[point] = asyncio.Event()

    def let_go(self, point: str) -> None:
        del self._plans[point]
        self._gates[point].set()

    async def reach(self, point: str) -> None:
        if self.reach_now(point) == "hold":
            await self._gates[point].wait()

    def reach_now(self, point: str) -> What | None:
        self.passed.append(point)
        what = self._plans.get(point)
        if what is not None:
            self._tell("reached", point)
            if what in NUMBERS:
                del self._plans[point]
                os.kill(os.getpid(), NUMBERS[what])
        return what


class Watched:
    """A store with a point before and after each of its verbs; it does what the store does."""

    def __init__(self, store: object, name: str, points: Points) -> None:
        self._store, self._name, self._points = store, name, points

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        before, after = f"before {self._name}.{name}", f"after {self._name}.{name}"
        points = self._points

        async def asked(*args: Any, **more: Any) -> Any:
            await points.reach(before)
            result = await verb(*args, **more)
            await points.reach(after)
            return result

        async def read(*args: Any, **more: Any) -> AsyncIterator[Any]:
            await points.reach(before)
            async for page in verb(*args, **more):
                yield page
            await points.reach(after)

        def told(*args: Any, **more: Any) -> Any:
            points.reach_now(before)
            result = verb(*args, **more)
            points.reach_now(after)
            return result

        if inspect.iscoroutinefunction(verb):
            return asked
        if inspect.isasyncgenfunction(verb):
            return read
        return told if inspect.ismethod(verb) else verb
