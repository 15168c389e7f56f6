"""A worker at work: takes tasks, runs them, keeps their leases, cuts what is not its any more."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from fairlane.errors import FairlaneError
from fairlane.ids import token
from fairlane.model.worker import WorkerState
from fairlane.pull.shapes import Ask, News, Offer, Ref, Result, Status, Task, Trouble
from fairlane.worker.calling import Handler, call
from fairlane.worker.context import Context, TaskFailed
from fairlane.worker.line import Away, Line, Unknown
from fairlane.worker.models import Loader, Models
from fairlane.worker.reports import Reports

log = logging.getLogger("fairlane.worker")

WAIT = 20.0
"""Seconds a poll waits. It is woken; nothing depends on this."""

MOMENT = 0.25
"""Seconds a full worker waits for room before it opens a poll only to hear of cancels."""

PAUSE = 0.5
LONGEST_PAUSE = 5.0
BETWEEN_WORDS = 1.0
"""Seconds between two reports of progress of one task."""

LAST_WORDS = 5.0
"""Seconds that a worker takes at the most to give back what it could not finish."""


@dataclass(eq=False)
class Running:
    task: Task
    ctx: Context
    work: asyncio.Task[None]
    wanted: bool = True
    said: tuple[float, str] | None = None


class Runtime:
    def __init__(
        self,
        line: Line,
        handlers: Mapping[str, Handler],
        offer: Offer,
        *,
        loader: Loader | None = None,
        grace: float = 30,
    ) -> None:
        self._line, self._handlers, self._offer, self._grace = line, handlers, offer, grace
        self._threads = ThreadPoolExecutor(offer.capacity, "fairlane-task")
        self._models = Models(loader, self._threads)
        self._reports = Reports(line)
        self._running: dict[str, Running] = {}
        self._room = asyncio.Event()
        self._drain = asyncio.Event()
        self._heartbeat = offer.heartbeat / 1_000_000
        self._asked: Ask | None = None

    async def run(self) -> None:
        """Until it is drained: what runs may finish within the grace time, the rest is given
        back."""
        await self._register()
        forever = self._beat(), self._reports.run(), self._tell_progress()
        background = [asyncio.create_task(each) for each in forever]
        polling = asyncio.create_task(self._poll())
        try:
            await self._drain.wait()
            await self._end(polling)
        finally:
            for task in (*background, polling):
                task.cancel()
            await asyncio.gather(*background, polling, return_exceptions=True)
            self._threads.shutdown(wait=False, cancel_futures=True)

    def drain(self) -> None:
        self._drain.set()

    # --- taking ------------------------------------------------------------------------------
    async def _register(self) -> None:
        pause = PAUSE
        while True:
            try:
                registered = await self._line.register(self._offer)
            except Away as error:
                log.warning("cannot register, trying again: %s", error)
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            self._heartbeat = registered.heartbeat
            log.info("registered as %s", registered.worker)
            return

    async def _poll(self) -> None:
        ask: Ask | None = None
        while not self._drain.is_set():
            if ask is None:
                ask = await self._next_ask()
            self._asked = ask
            try:
                news = await self._ask(ask)
            except Away as error:
                log.warning("no answer, asking again: %s", error)
                ask = ask._replace(first=False)
                await asyncio.sleep(PAUSE * random.uniform(0.8, 1.2))
                continue
            except Unknown:
                log.warning("the queue does not know this worker any more")
                self._cut([each.task.id for each in self._running.values()])
                await self._register()
            except FairlaneError:
                log.exception("a poll was refused")
                await asyncio.sleep(LONGEST_PAUSE)
            else:
                if news is not None:
                    self._hear(await self._confirmed(news) if news.confirm else news)
            ask = self._asked = None

    async def _next_ask(self) -> Ask:
        """A full worker waits a moment for room: tasks that are soon over need no poll of their
        own."""
        free = self._free()
        if free <= 0:
            self._room.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(MOMENT):
                    await self._room.wait()
            free = self._free()
        name = token() if free > 0 else ""
        return Ask(
            max(0, free),
            WAIT,
            name,
            first=True,
            leases=self._leases(),
            model=self._models.told(),
            confirms=True,
        )

    async def _ask(self, ask: Ask) -> News | None:
        """A poll that only listens ends when there is room again."""
        if ask.n > 0:
            return await self._line.poll(ask)
        polling = asyncio.create_task(self._line.poll(ask))
        room = asyncio.create_task(self._room.wait())
        try:
            await asyncio.wait((polling, room), return_when=asyncio.FIRST_COMPLETED)
            return await polling if polling.done() else None
        finally:
            for task in (polling, room):
                task.cancel()
            await asyncio.gather(polling, room, return_exceptions=True)

    async def _confirmed(self, news: News) -> News:
        """Nothing starts that the queue has given to somebody else meanwhile: this process may have
        stood still."""
        leases = (*self._leases(), *(task.ref for task in news.tasks))
        while True:
            try:
                heard = await self._line.heartbeat(WorkerState.ACTIVE, leases)
            except Away as error:
                log.warning("tasks are not confirmed, trying again: %s", error)
                await asyncio.sleep(PAUSE)
                continue
            except FairlaneError:
                log.exception("tasks cannot be confirmed")
                return News()
            gone = {*heard.cancel, *heard.lost}
            tasks = tuple(task for task in news.tasks if task.id not in gone)
            return heard._replace(tasks=tasks, drain=heard.drain or news.drain)

    def _free(self) -> int:
        return self._offer.capacity - len(self._running)

    def _leases(self) -> tuple[Ref, ...]:
        return tuple(each.task.ref for each in self._running.values() if each.wanted)

    def _hear(self, news: News) -> None:
        self._cut([*news.cancel, *news.lost])
        for task in news.tasks:
            self._start(task)
        if news.drain:
            self.drain()

    def _cut(self, tasks: list[str]) -> None:
        """Nobody wants their results: an async function is cancelled, a thread is told."""
        for name in tasks:
            running = self._running.get(name)
            if running is not None and running.wanted:
                log.info("%s is not ours any more", name)
                running.wanted = False
                running.ctx.cancel()
                running.work.cancel()

    # --- running -----------------------------------------------------------------------------
    def _start(self, task: Task) -> None:
        if task.id in self._running:  # heard of twice, or lost and back before it was cut
            self._reports.add(Result(task.ref, "released"))
            return

        def tell(percent: float, text: str) -> None:
            running.said = (percent, text)

        ctx = Context(task, tell)
        work = asyncio.create_task(self._run(task, ctx))
        running = self._running[task.id] = Running(task, ctx, work)
        work.add_done_callback(lambda _: self._ended(task.id))

    def _ended(self, task: str) -> None:
        del self._running[task]
        self._room.set()

    async def _run(self, task: Task, ctx: Context) -> None:
        handler = self._handlers.get(task.type)
        if handler is None:
            self._report(task, "released")
            return
        limit = handler.seconds(task)
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                ctx.model = await self._models.get(task.model)
                output = await call(handler, task, ctx, self._threads)
            orjson.dumps(output)
        except asyncio.CancelledError:
            if handler.is_async or self._running[task.id].wanted:  # a thread may go on
                self._reports.add(Result(task.ref, "released"))
        except TaskFailed as error:
            self._report(task, "failed", None, Trouble(str(error), error.retriable, error.code))
        except Exception as error:
            trouble = Trouble(f"{type(error).__name__}: {error}")
            if isinstance(error, TimeoutError) and scope.expired():
                ctx.cancel()
                trouble = Trouble(f"no result after {limit:g} s", code="timeout")
            log.warning("task %s of type %s failed", task.id, task.type, exc_info=error)
            self._report(task, "failed", None, trouble)
        else:
            self._report(task, "completed", output)

    def _report(
        self, task: Task, status: Status, output: Any = None, trouble: Trouble | None = None
    ) -> None:
        running = self._running.get(task.id)
        if running is None or running.wanted:
            self._reports.add(Result(task.ref, status, output, None, trouble or Trouble()))

    # --- staying alive -----------------------------------------------------------------------
    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat)
            state = WorkerState.DRAINING if self._drain.is_set() else WorkerState.ACTIVE
            try:
                self._hear(await self._line.heartbeat(state, self._leases()))
            except (Away, Unknown) as error:
                log.warning("no heartbeat, trying again: %s", error)
            except FairlaneError:
                log.exception("a heartbeat was refused")

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(BETWEEN_WORDS)
            for running in list(self._running.values()):
                said, running.said = running.said, None
                if said is not None and running.wanted:
                    try:
                        await self._line.progress(running.task.ref, *said)
                    except FairlaneError as error:
                        log.warning("progress of %s not told: %s", running.task.id, error)

    # --- ending ------------------------------------------------------------------------------
    async def _end(self, polling: asyncio.Task[None]) -> None:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        works = [each.work for each in self._running.values()]
        try:
            async with asyncio.timeout(LAST_WORDS):
                self._hear(await self._line.heartbeat(WorkerState.DRAINING, self._leases()))
                await self._return_unheard()
        except (FairlaneError, TimeoutError) as error:
            log.warning("could not say that it leaves: %s", error)
        if works and self._grace:
            await asyncio.wait(works, timeout=self._grace)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._reports.flush()
                await self._line.heartbeat(WorkerState.DEAD, ())
        except (FairlaneError, TimeoutError) as error:
            log.warning("could not say good-bye: %s", error)

    async def _return_unheard(self) -> None:
        """A poll that was cut off may have been answered: what it got goes back untried. A worker
        that drains gets nothing new."""
        if self._asked is not None and self._asked.name:
            again = self._asked._replace(first=False, wait=0, leases=())
            for task in (await self._line.poll(again)).tasks:
                if task.id not in self._running:
                    self._reports.add(Result(task.ref, "released"))
