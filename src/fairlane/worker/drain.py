"""Drain, the graceful shutdown of an SDK worker: it takes no more tasks, running tasks may finish
within the grace time, and the rest are given back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from fairlane.errors import FairlaneError
from fairlane.model.worker import WorkerState
from fairlane.worker.heartbeat import Heartbeat
from fairlane.worker.result_sender import ResultSender
from fairlane.worker.task_runner import EndedTask, Running
from fairlane.worker.transport import Transport
from fairlane.worker_protocol.messages import PollAsk, Result

Out = TypeVar("Out")

log = logging.getLogger("fairlane.worker")

GIVE_BACK_SECONDS = 5.0
"""Seconds that a worker takes at most to give back tasks that did not finish."""


class Drain:
    """`requested` starts it, `idle` is set when the last running task has ended. `cancel` stops a
    task, `ended` notes that it has ended."""

    def __init__(
        self,
        running: Mapping[str, Running],
        cancel: Callable[[Running], None],
        ended: Callable[[Running, EndedTask], None],
        grace: float,
    ) -> None:
        self._running, self._cancel, self._ended = running, cancel, ended
        self._grace = grace
        self.requested, self.idle = asyncio.Event(), asyncio.Event()

    def request(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts a graceful shutdown. May be called from any thread and from a signal handler."""
        with suppress(RuntimeError):  # it has ended already
            loop.call_soon_threadsafe(self.requested.set)

    async def unless_requested(self, doing: Coroutine[Any, Any, Out]) -> Out | None:
        """The result of the coroutine, or None if the worker is drained before it ends."""
        work, drain = asyncio.create_task(doing), asyncio.create_task(self.requested.wait())
        try:
            await asyncio.wait((work, drain), return_when=asyncio.FIRST_COMPLETED)
            return await work if work.done() else None
        finally:
            for each in (work, drain):
                each.cancel()
            await asyncio.gather(work, drain, return_exceptions=True)

    async def finish(
        self,
        transport: Transport,
        heartbeat: Heartbeat,
        reports: ResultSender,
        unheard: PollAsk | None,
    ) -> None:
        """Ends the running tasks and says good-bye. `unheard` is the poll that was cut off."""
        try:
            async with asyncio.timeout(GIVE_BACK_SECONDS):
                await heartbeat.renew()
                await self._return_unheard(transport, reports, unheard)
        except (FairlaneError, TimeoutError) as error:
            log.warning("could not say that it leaves: %s", error)
        await self._until_idle(self._grace)
        for running in self._running.values():
            self._cancel(running)
        await self._until_idle(GIVE_BACK_SECONDS)
        for running in list(self._running.values()):
            log.warning("%s does not stop; it is given back", running.task.id)
            self._ended(running, EndedTask(Result(running.task.ref, "released")))
        try:
            async with asyncio.timeout(GIVE_BACK_SECONDS):
                await reports.flush()
                await transport.heartbeat(WorkerState.DEAD, ())
        except (FairlaneError, TimeoutError) as error:
            log.warning("could not say good-bye: %s", error)

    async def _until_idle(self, seconds: float) -> None:
        """Returns when no task runs, or after this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:
                    self.idle.clear()
                    await self.idle.wait()

    async def _return_unheard(
        self, transport: Transport, reports: ResultSender, asked: PollAsk | None
    ) -> None:
        """Gives back the tasks of a poll whose response was cut off. A draining worker gets no new
        ones."""
        if asked is not None and asked.name:
            again = asked._replace(first=False, wait=0, leases=())
            for task in (await transport.poll(again)).tasks:
                if task.id not in self._running:
                    reports.add(Result(task.ref, "released"))
