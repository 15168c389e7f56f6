"""A worker: functions that run tasks, and what they offer."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from fairlane.engine import Engine
from fairlane.errors import SetupError
from fairlane.pull.shapes import Offer
from fairlane.worker.calling import Function, Handler
from fairlane.worker.direct import DirectLine
from fairlane.worker.http import HttpLine
from fairlane.worker.line import Line
from fairlane.worker.models import Loader
from fairlane.worker.runtime import Runtime

AnyFunction = TypeVar("AnyFunction", bound=Function)


class Worker:
    """Declare tasks with `@worker.task("resize")`, then `worker.run()`, or `fairlane worker
    app:worker`. `loader` makes of a model's name what `ctx.model` is. Times are seconds."""

    def __init__(
        self,
        *,
        capacity: int = 5,
        capabilities: Iterable[str] = (),
        region: str | None = None,
        tiers: Iterable[str] | None = None,
        version: str = "",
        loader: Loader | None = None,
        heartbeat: float = 5,
        grace: float = 30,
    ) -> None:
        self._offer = Offer(
            frozenset(capabilities),
            capacity,
            frozenset(),
            region,
            None if tiers is None else frozenset(tiers),
            version,
            round(heartbeat * 1_000_000),
        )
        self._loader, self._grace = loader, grace
        self._handlers: dict[str, Handler] = {}
        self._at_work: list[Runtime] = []

    def task(
        self, task_type: str, *, capabilities: Iterable[str] = (), timeout: float = 0
    ) -> Callable[[AnyFunction], AnyFunction]:
        """The function runs tasks of this type: an async one on the loop, a plain one in a thread.
        Its result is the task's, as JSON. `capabilities` are what this worker offers for it."""

        def declare(function: AnyFunction) -> AnyFunction:
            if task_type in self._handlers:
                raise SetupError(f'two functions for tasks of type "{task_type}"')
            needs = frozenset(capabilities)
            self._handlers[task_type] = Handler(task_type, function, needs, timeout)
            return function

        return declare

    @property
    def offer(self) -> Offer:
        """What it registers with."""
        more = (handler.capabilities for handler in self._handlers.values())
        return self._offer._replace(
            capabilities=self._offer.capabilities.union(*more),
            task_types=frozenset(self._handlers),
        )

    def run(self, url: str | None = None, key: str | None = None) -> None:
        """Over HTTP, until SIGTERM or Ctrl-C. `FAIRLANE_URL` and `FAIRLANE_KEY` say where, if the
        arguments do not."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        asyncio.run(self._until_a_signal(url, key))

    async def _until_a_signal(self, url: str | None, key: str | None) -> None:
        with suppress(NotImplementedError):  # where there are no signals, Ctrl-C just ends it
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.drain)
        await self.serve(url, key)

    async def serve(self, url: str | None = None, key: str | None = None) -> None:
        """Over HTTP, until it is drained."""
        await self._work(HttpLine(url, key))

    async def serve_on(self, engine: Engine) -> None:
        """Straight on an engine of this process, until it is drained."""
        await self._work(DirectLine(engine))

    def drain(self) -> None:
        """No more tasks; what runs may finish within the grace time, the rest is given back."""
        for runtime in self._at_work:
            runtime.drain()

    async def _work(self, line: Line) -> None:
        if not self._handlers:
            raise SetupError('this worker has no tasks; declare some with @worker.task("…")')
        runtime = Runtime(line, self._handlers, self.offer, loader=self._loader, grace=self._grace)
        self._at_work.append(runtime)
        try:
            await runtime.run()
        finally:
            self._at_work.remove(runtime)
            await line.close()
