"""Runs task functions: on the loop that `serve` was called on, and in threads. It reports each end
to the worker protocol, which may run on another loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlane.engine.model_times import LOAD_METRIC
from fairlane.errors import InvalidInput
from fairlane.json_text import json_bytes
from fairlane.model.file_result import FileResult
from fairlane.worker.blocked_loop import BlockedLoopWatch
from fairlane.worker.context import Context, Stream, TaskFailed
from fairlane.worker.elapsed import Moment
from fairlane.worker.handlers import Handler, call
from fairlane.worker.models import Loader, Models
from fairlane.worker_protocol.messages import Result, Task, Trouble

log = logging.getLogger("fairlane.worker")

MAX_MESSAGE_CHARS = 500
NOT_JSON = "service_error"
"""The fault of a task whose result is not JSON: a retry would return the same."""


@dataclass(eq=False)
class Running:
    """A task that this worker holds. The protocol owns it; the task's side only reads it and
    reports progress. `since` is when the request was sent whose response last confirmed the
    lease."""

    task: Task
    since: Moment
    lease_seconds: float
    ctx: Context = field(init=False)
    said: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=1))
    wanted: bool = True
    stream: Stream = lambda _: None

    def __post_init__(self) -> None:
        self.ctx = Context(
            self.task,
            lambda percent, text: self.said.append((percent, text)),
            stream=self.stream,
        )

    def holds(self) -> bool:
        """Whether the lease is certainly still valid, by this process's own clock. That clock also
        counts time in which the process stood still."""
        return self.since.age() < self.lease_seconds


class EndedTask(NamedTuple):
    """How a task ended. `cut`: report it even if its result is no longer wanted, because its slots
    are free now."""

    result: Result | None
    cut: bool = False


Tell = Callable[[Running, EndedTask], None]
Renew = Callable[[Running], Awaitable[None]]


class Runner:
    """Runs entirely on the loop on which it was created. `tell` and `renew` reach the protocol."""

    def __init__(
        self, handlers: Mapping[str, Handler], capacity: int, loader: Loader | None
    ) -> None:
        self._handlers = handlers
        self._threads = ThreadPoolExecutor(capacity, "fairlane-task")
        self._context = contextvars.copy_context()
        self._works: dict[Running, asyncio.Task[EndedTask]] = {}
        self._watch = BlockedLoopWatch(self._handler_of)
        self.models = Models(loader, self._threads)
        self.tell: Tell
        self.renew: Renew

    def open(self) -> None:
        self._watch.start()

    def close(self) -> None:
        self._watch.stop()
        for work in self._works.values():
            work.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def start(self, running: Running) -> None:
        work = asyncio.create_task(self._run(running), context=self._context.copy())
        self._works[running] = work
        work.add_done_callback(lambda _: self._over(running, work))

    def cancel(self, running: Running) -> None:
        work = self._works.get(running)
        if work is not None:
            work.cancel()

    def _over(self, running: Running, work: asyncio.Task[EndedTask]) -> None:
        del self._works[running]
        if work.cancelled():  # before the function began
            self.tell(running, EndedTask(Result(running.task.ref, "released"), cut=True))
        else:
            self.tell(running, work.result())

    async def _run(self, running: Running) -> EndedTask:
        task, ctx = running.task, running.ctx
        handler = self._handlers.get(task.type)
        if handler is None:
            return EndedTask(Result(task.ref, "released"))
        limit = handler.seconds(task)
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                await self._hold(running)
                model = task.model if handler.loads_model else ""
                ctx.model, load_seconds = await self.models.get(model)
                output = await call(handler, running, self._threads, lambda: self._hold(running))
                output = handler.output(output)
        except asyncio.CancelledError:
            return EndedTask(
                Result(task.ref, "released"), cut=handler.is_async
            )  # a thread may go on
        except TaskFailed as error:
            return _failed(task, Trouble(str(error), error.retriable, error.code))
        except TimeoutError as error:
            if not scope.expired():
                return _failed(task, _unexpected(task, error))
            ctx.cancel()
            log.warning("task %s of type %s: no result after %g s", task.id, task.type, limit)
            return _failed(task, Trouble(f"no result after {limit:g} s", code="timeout"))
        except Exception as error:  # noqa: BLE001 - whatever a task raises is its failure
            return _failed(task, _unexpected(task, error))
        return _with_load_time(_completed(task, output), load_seconds)

    async def _hold(self, running: Running) -> None:
        """Waits until the lease is certainly valid: this process may have stood still. If the queue
        has given the task to another worker, the task is cancelled here."""
        while not running.holds():
            await self.renew(running)

    def _handler_of(self, work: asyncio.Task[object]) -> Handler | None:
        """Called from another thread."""
        for running, each in list(self._works.items()):
            if each is work:
                return self._handlers.get(running.task.type)
        return None


def _completed(task: Task, output: Any) -> EndedTask:
    """Bytes are a file. A result that is not JSON fails the task without a retry: it would return
    the same again."""
    if isinstance(output, bytes | bytearray):
        output = FileResult(bytes(output))
    if isinstance(output, FileResult):
        output = output.json()
    try:
        json_bytes("result", output)
    except InvalidInput as error:
        log.warning("task %s of type %s failed: %s", task.id, task.type, _transport(str(error)))
        message = f"task {task.type}: {error}"
        return _failed(task, Trouble(message, retriable=False, code=NOT_JSON))
    return EndedTask(Result(task.ref, "completed", output))


def _with_load_time(ended: EndedTask, load_seconds: float | None) -> EndedTask:
    """The same, with how long this task took to load its model, if it did."""
    if load_seconds is None or ended.result is None:
        return ended
    metrics = {LOAD_METRIC: round(load_seconds, 3)}
    return ended._replace(result=ended.result._replace(metrics=metrics))


def _failed(task: Task, trouble: Trouble) -> EndedTask:
    return EndedTask(Result(task.ref, "failed", None, None, trouble))


def _unexpected(task: Task, error: Exception) -> Trouble:
    """An error in the task's code: its type and message in one line; the traceback is logged at
    level debug."""
    message = f"{type(error).__name__}: {error}"
    log.warning("task %s of type %s failed: %s", task.id, task.type, _transport(message))
    where = "".join(traceback.format_tb(error.__traceback__))
    log.debug("task %s of type %s failed at %s", task.id, task.type, where)
    return Trouble(message)


def _transport(text: str) -> str:
    cut = text[:MAX_MESSAGE_CHARS] + ("…" if len(text) > MAX_MESSAGE_CHARS else "")
    return "".join(each if each.isprintable() else " " for each in cut)
