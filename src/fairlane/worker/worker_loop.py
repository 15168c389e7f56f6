"""The runtime of an SDK worker: polls for tasks, runs them, tells their progress, and cancels tasks
whose leases are gone. `heartbeat.py` renews the leases, `drain.py` shuts the worker down."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress

from fairlane.errors import FairlaneError
from fairlane.ids import token
from fairlane.worker.drain import Drain
from fairlane.worker.elapsed import LONG_AGO, Moment
from fairlane.worker.event_loops import LoopCalls
from fairlane.worker.heartbeat import Heartbeat
from fairlane.worker.output_sender import OutputSender
from fairlane.worker.result_sender import ResultSender
from fairlane.worker.task_runner import EndedTask, Runner, Running
from fairlane.worker.transport import RETRY_PAUSE_SECONDS, ServerAway, Transport, UnknownWorker
from fairlane.worker_protocol.long_poll import DEFAULT_WAIT_SECONDS
from fairlane.worker_protocol.messages import News, Offer, PollAsk, Result, Task

log = logging.getLogger("fairlane.worker")

FULL_WAIT_SECONDS = 0.25
"""Seconds that a full worker waits for capacity before it opens a poll that only listens for
cancellations."""

MAX_RETRY_PAUSE_SECONDS = 5.0
PROGRESS_PERIOD_SECONDS = 1.0
"""Seconds between two progress reports of one task."""

LEASE_TRUSTED = 0.9
"""The part of a lease that a worker trusts without asking: its clock may be slower than the
server's."""


class Runtime:
    """The worker protocol on one loop: registers, polls, renews leases, reports. Tasks run on the
    loop of the `runner`, which may be another one."""

    def __init__(
        self, runner: Runner, tasks: LoopCalls, offer: Offer, *, grace: float = 30
    ) -> None:
        self._runner, self._tasks = runner, tasks
        self._offer = offer
        self._transport: Transport
        self._heartbeat: Heartbeat
        self._reports: ResultSender
        self._outputs: OutputSender
        self._here: LoopCalls
        self._running: dict[str, Running] = {}
        self._room = asyncio.Event()
        self._drain = Drain(self._running, self._cancel, self._ended, grace)
        self._lease = 3 * offer.heartbeat / 1_000_000
        self._asked: PollAsk | None = None
        self._asked_at = LONG_AGO

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sets the loop on which `run` will be called."""
        self._here = LoopCalls(loop)
        self._runner.tell = lambda running, ended: self._here.call(self._ended, running, ended)
        self._runner.renew = self._renewed_there

    async def run(self, opened: AbstractAsyncContextManager[Transport]) -> None:
        """Runs until it is drained. Then running tasks may finish within the grace time; the rest
        are given back."""
        async with AsyncExitStack() as stack:
            transport = await self._drain.unless_requested(stack.enter_async_context(opened))
            if transport is None:
                return
            self._transport, self._outputs = transport, OutputSender(transport)
            self._reports = ResultSender(transport, self._outputs)
            self._heartbeat = Heartbeat(
                transport,
                self._running,
                self._drain.requested,
                self._hear,
                self._offer.heartbeat / 1_000_000,
            )
            if await self._drain.unless_requested(self._register()):
                await self._work()

    async def _work(self) -> None:
        forever = (
            self._heartbeat.run(),
            self._reports.run(),
            self._outputs.run(),
            self._tell_progress(),
        )
        background = [asyncio.create_task(each) for each in forever]
        polling = asyncio.create_task(self._poll())
        draining = asyncio.create_task(self._drain.requested.wait())
        tasks = (*background, polling, draining)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task  # if one of them fails, the worker ends: it cannot work without it
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            await self._drain.finish(self._transport, self._heartbeat, self._reports, self._asked)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def drain(self) -> None:
        """Starts a graceful shutdown. May be called from any thread and from a signal handler."""
        self._drain.request(self._here.loop)

    # --- taking ------------------------------------------------------------------------------
    async def _register(self) -> bool:
        pause = RETRY_PAUSE_SECONDS
        while True:
            try:
                registered = await self._transport.register(self._offer)
            except ServerAway as error:
                log.warning("cannot register, trying again: %s", error)
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, MAX_RETRY_PAUSE_SECONDS)
                continue
            self._heartbeat.interval, self._lease = registered.heartbeat, registered.lease
            log.info("registered as %s", registered.worker)
            return True

    async def _poll(self) -> None:
        ask: PollAsk | None = None
        while not self._drain.requested.is_set():
            if ask is None:
                ask = await self._next_ask()
                self._asked_at = Moment.now()
            self._asked = ask
            try:
                news = await self._ask(ask)
            except ServerAway as error:
                log.warning("no answer, asking again: %s", error)
                ask = ask._replace(first=False)
                await asyncio.sleep(RETRY_PAUSE_SECONDS * random.uniform(0.8, 1.2))
                continue
            except UnknownWorker:
                log.warning("the queue does not know this worker any more")
                self._cut([each.task.id for each in self._running.values()])
                await self._register()
            except FairlaneError:
                log.exception("a poll was refused")
                await asyncio.sleep(MAX_RETRY_PAUSE_SECONDS)
            else:
                if news is not None:
                    since = self._asked_at
                    if news.confirm:
                        news, since = await self._heartbeat.confirmed(news)
                    self._hear(news, since)
            ask = self._asked = None

    async def _next_ask(self) -> PollAsk:
        """The next poll. A full worker first waits a moment for capacity, because short tasks need
        no listening poll."""
        free = self._free()
        if free <= 0:
            self._room.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(FULL_WAIT_SECONDS):
                    await self._room.wait()
            free = self._free()
        name = token() if free > 0 else ""
        return PollAsk(
            max(0, free),
            DEFAULT_WAIT_SECONDS,
            name,
            first=True,
            leases=self._heartbeat.leases(),
            model=self._runner.models.told(),
            confirms=True,
        )

    async def _ask(self, ask: PollAsk) -> News | None:
        """Polls. A poll that only listens ends when there is capacity again."""
        if ask.n > 0:
            return await self._transport.poll(ask)
        polling = asyncio.create_task(self._transport.poll(ask))
        room = asyncio.create_task(self._room.wait())
        try:
            await asyncio.wait((polling, room), return_when=asyncio.FIRST_COMPLETED)
            return await polling if polling.done() else None
        finally:
            for task in (polling, room):
                task.cancel()
            await asyncio.gather(polling, room, return_exceptions=True)

    def _free(self) -> int:
        return self._offer.capacity - len(self._running)

    def _hear(self, news: News, since: Moment) -> None:
        self._cut([*news.cancel, *news.lost])
        for task in news.tasks:
            self._start(task, since)
        if news.drain:
            self._drain.requested.set()

    def _cut(self, tasks: list[str]) -> None:
        """Cancels tasks whose results are no longer wanted: an async function is cancelled, a
        thread is notified."""
        for name in tasks:
            running = self._running.get(name)
            if running is not None and running.wanted:
                log.info("%s is not ours any more", name)
                running.wanted = False
                self._cancel(running)

    def _cancel(self, running: Running) -> None:
        running.ctx.cancel()
        self._tasks.call(self._runner.cancel, running)

    def _start(self, task: Task, since: Moment) -> None:
        if task.id in self._running:  # reported twice, or lost and taken again before it was cut
            self._reports.add(Result(task.ref, "released"))
            return
        running = self._running[task.id] = Running(
            task,
            since,
            LEASE_TRUSTED * self._lease,
            stream=lambda chunk: self._here.call(self._outputs.add, task.ref, chunk),
        )
        self._outputs.begin(task.ref)
        self._tasks.call(self._runner.start, running)

    def _ended(self, running: Running, ended: EndedTask) -> None:
        if self._running.pop(running.task.id, None) is None:
            return  # given back already
        self._room.set()
        if not self._running:
            self._drain.idle.set()
        if ended.result is not None and (running.wanted or ended.cut):
            self._reports.add(ended.result)
        else:
            self._outputs.drop(running.task.ref)

    # --- staying alive -----------------------------------------------------------------------
    async def _renewed_there(self, running: Running) -> None:
        """Called on the tasks' loop for a task that must not begin yet. Returns when the server has
        answered, or after a moment."""
        renewing = asyncio.run_coroutine_threadsafe(
            self._heartbeat.renew_late(running), self._here.loop
        )
        await asyncio.wrap_future(renewing)

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_PERIOD_SECONDS)
            for running in list(self._running.values()):
                if running.said and running.wanted:
                    try:
                        await self._transport.progress(running.task.ref, *running.said.pop())
                    except FairlaneError as error:
                        log.warning("progress of %s not told: %s", running.task.id, error)
