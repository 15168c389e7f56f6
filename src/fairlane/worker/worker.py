"""The worker SDK: declares functions that run tasks."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from fairlane.engine import Engine
from fairlane.engine.submit_terms import check_retries
from fairlane.errors import SetupError
from fairlane.model.step import RetryTerms
from fairlane.worker.direct_transport import DirectTransport
from fairlane.worker.event_loops import LoopCalls, LoopThread
from fairlane.worker.handlers import NOTHING_DECLARED, Function, Handler
from fairlane.worker.http_transport import HttpTransport
from fairlane.worker.models import Loader
from fairlane.worker.quality_check import QualityCheckHandler
from fairlane.worker.signals import calling_on_signals
from fairlane.worker.task_runner import Runner
from fairlane.worker.transport import Transport
from fairlane.worker.worker_loop import Runtime
from fairlane.worker_protocol.messages import Offer

AnyFunction = TypeVar("AnyFunction", bound=Function)


class Worker:
    """Declare tasks with `@worker.task("resize")`, then call `worker.run()`, or run `fairlane
    worker app:worker`. `loader` turns a model's name into `ctx.model`. `name` is shown to people;
    it is the name of the host if not given. Times are seconds."""

    def __init__(  # noqa: PLR0913 - each is an option of its own
        self,
        *,
        capacity: int = 5,
        capabilities: Iterable[str] = (),
        region: str | None = None,
        tiers: Iterable[str] | None = None,
        version: str = "",
        name: str | None = None,
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
            name=socket.gethostname() if name is None else name,
        )
        self._loader, self._grace = loader, grace
        self._handlers: dict[str, Handler] = {}
        self._at_work: list[Runtime] = []

    def task(
        self,
        task_type: str,
        *,
        capabilities: Iterable[str] = (),
        timeout: float = 0,
        max_retries: int | None = None,
        backoff: float | Iterable[float] = (),
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Declares the function that runs tasks of this type: an async function on the event loop,
        a plain function in a thread. It returns the task's result, as JSON. `capabilities` are what
        this worker offers for it. `timeout` is the time limit of one attempt, `max_retries` the
        number of retries, `backoff` the pause before each retry, or a list of pauses. A submit may
        override these."""
        pauses = (backoff,) if isinstance(backoff, int | float) else backoff
        terms = RetryTerms(
            max_retries,
            tuple(round(pause * 1_000_000) for pause in pauses),
            round(timeout * 1_000_000),
        )
        check_retries(terms.max_retries, terms.backoff)

        def declare(function: AnyFunction) -> AnyFunction:
            self._add(Handler(task_type, function, frozenset(capabilities), terms))
            return function

        return declare

    def quality_check(
        self, service: str, *, timeout: float = 0
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Declares the function that checks the output of a service whose settings have a table
        `quality_check` without `url` and `service`. It gets the output as `result` and, if it has
        such arguments, the job's `parameters` and `ctx`. It returns whether the output is good
        enough: a bool, `(bool, reason)`, or a dict with `passed` and `reason`. `ctx.model` is
        None."""

        def declare(function: AnyFunction) -> AnyFunction:
            terms = RetryTerms(timeout=round(timeout * 1_000_000))
            self._add(QualityCheckHandler(service, function, terms))
            return function

        return declare

    def _add(self, handler: Handler) -> None:
        name = handler.task_type
        if name in self._handlers:
            raise SetupError(
                f'two functions are declared for task type "{name}"; remove one of them'
            )
        self._handlers[name] = handler

    @property
    def offer(self) -> Offer:
        """What the worker registers with."""
        more = (handler.capabilities for handler in self._handlers.values())
        return self._offer._replace(
            capabilities=self._offer.capabilities.union(*more),
            task_types=frozenset(self._handlers),
            tasks={
                name: handler.terms
                for name, handler in self._handlers.items()
                if handler.terms != NOTHING_DECLARED
            },
        )

    def run(self, url: str | None = None, key: str | None = None) -> None:
        """Runs over HTTP until SIGTERM or Ctrl-C. `FAIRLANE_URL` and `FAIRLANE_KEY` are the
        defaults of the arguments."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        with calling_on_signals(self.drain):
            asyncio.run(self.serve(url, key))

    async def serve(self, url: str | None = None, key: str | None = None) -> None:
        """Runs over HTTP until it is drained. Async functions run on this event loop. Heartbeats,
        polls and reports run on another loop in a thread, so a task that blocks this loop keeps its
        lease."""
        await self._work(_transport(HttpTransport(url, key)))

    async def serve_with(self, engine: AbstractAsyncContextManager[Engine]) -> None:
        """Runs directly on the stores until it is drained. The engine is opened on the loop of the
        protocol."""
        await self._work(_own_engine(engine))

    async def serve_on(self, engine: Engine) -> None:
        """Runs directly on an engine of this process until it is drained. Engine and tasks share
        this event loop: a task that blocks it blocks the engine."""
        await self._work(_direct(engine), apart=False)

    def drain(self) -> None:
        """Starts a graceful shutdown: no more tasks. Running tasks may finish within the grace
        time; the rest are given back."""
        for runtime in self._at_work:
            runtime.drain()

    async def _work(
        self, opened: AbstractAsyncContextManager[Transport], *, apart: bool = True
    ) -> None:
        if not self._handlers:
            raise SetupError('this worker has no tasks; declare some with @worker.task("…")')
        here = asyncio.get_running_loop()
        thread = LoopThread(here) if apart else None
        runner = Runner(self._handlers, self._offer.capacity, self._loader)
        runtime = Runtime(runner, LoopCalls(here), self.offer, grace=self._grace)
        runtime.bind(here if thread is None else thread.loop)
        self._at_work.append(runtime)
        runner.open()
        try:
            work = runtime.run(opened)
            await (work if thread is None else thread.run(work))
        finally:
            self._at_work.remove(runtime)
            runner.close()


@asynccontextmanager
async def _transport(transport: Transport) -> AsyncIterator[Transport]:
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def _direct(engine: Engine) -> AsyncIterator[Transport]:
    async with _transport(DirectTransport(engine)) as transport:
        yield transport


@asynccontextmanager
async def _own_engine(opened: AbstractAsyncContextManager[Engine]) -> AsyncIterator[Transport]:
    async with opened as engine, _direct(engine) as transport:
        yield transport
