"""Handlers: what `Worker.task` registers. They call a task's function with the arguments that it
declares."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from fairlane.model.step import RetryTerms
from fairlane.worker.context import Context, TaskFailed
from fairlane.worker_protocol.messages import Task

Function = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
NOT_BEGUN = object()
NOTHING_DECLARED = RetryTerms()
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Handler:
    """A function that runs tasks of one type, and the retry terms it declares. Its signature is
    inspected once, not with every task."""

    def __init__(
        self,
        task_type: str,
        function: Function,
        capabilities: frozenset[str] = frozenset(),
        terms: RetryTerms = NOTHING_DECLARED,
    ) -> None:
        self.task_type, self.function = task_type, function
        self.name = getattr(function, "__qualname__", repr(function))
        self.capabilities, self.terms = capabilities, terms
        self.signature = inspect.signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.wants_context = "ctx" in self.signature.parameters
        taken = self.signature.parameters.values()
        self._by_name = all(each.kind in BY_NAME for each in taken)
        self._known = frozenset(self.signature.parameters)
        self._needed = frozenset(each.name for each in taken if each.default is each.empty)

    loads_model = True
    """Whether the worker loads the task's model before it calls the function."""

    def parameters(self, task: Task) -> Any:
        """What the function is called with."""
        return task.parameters

    def output(self, returned: Any) -> Any:
        """The task's result, from what the function returned."""
        return returned

    def fits(self, given: dict[str, Any]) -> bool:
        """Whether the function certainly accepts these keywords."""
        return self._by_name and self._needed <= given.keys() <= self._known

    def seconds(self, task: Task) -> float:
        """The time limit of one attempt, in seconds. A timeout from the settings is shortened to
        the declared one: the task was submitted before the worker had registered."""
        own, declared = task.timeout, self.terms.timeout
        if declared and not task.timeout_given:
            own = min(own, declared)
        return own / 1_000_000


class Held(Protocol):
    """A task that this worker holds."""

    task: Task
    ctx: Context

    def holds(self) -> bool:
        """Whether its lease is certainly still valid."""


Hold = Callable[[], Awaitable[None]]
"""Returns as soon as the lease is certainly valid."""


async def call(handler: Handler, held: Held, threads: Executor, hold: Hold) -> Any:
    """Passes an object of parameters as keywords, any other value as the one argument, and `ctx` if
    the function has it. The lease is valid when the function begins."""
    args, kwargs = _arguments(handler, held.task, held.ctx)
    if handler.is_async:
        await hold()
        return await handler.function(*args, **kwargs)
    here = contextvars.copy_context()
    loop = asyncio.get_running_loop()

    def begin() -> Any:
        """Runs in the thread. Checks the lease again: the wait for a free thread may have been
        long."""
        if held.ctx.cancelled or not held.holds():
            return NOT_BEGUN
        return here.run(handler.function, *args, **kwargs)

    while True:
        await hold()
        running = loop.run_in_executor(threads, begin)
        try:
            output = await asyncio.shield(running)
        except asyncio.CancelledError:
            held.ctx.cancel()
            raise
        if output is not NOT_BEGUN:
            return output


def _arguments(handler: Handler, task: Task, ctx: Context) -> Arguments:
    signature = handler.signature
    own = {"ctx": ctx} if handler.wants_context else {}
    given = handler.parameters(task)
    try:
        if isinstance(given, dict):
            named = {**given, **own}
            if handler.fits(named):
                return (), named
            bound = signature.bind(**named)
        elif given is None:
            bound = signature.bind(**own)
        else:
            bound = _bound_one(signature, given, own)
    except TypeError as error:
        message = f"{task.type} cannot be called with these parameters: {error}"
        raise TaskFailed(message, code="invalid_input") from None
    return bound.args, bound.kwargs


def _bound_one(
    signature: inspect.Signature, given: Any, own: dict[str, Any]
) -> inspect.BoundArguments:
    names = [name for name in signature.parameters if name not in own]
    if not names:
        raise TypeError("it takes none")
    return signature.bind(**{names[0]: given}, **own)
