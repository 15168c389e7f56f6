"""The context of a running task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.model.progress import bounded
from fairlane.trace_context import traceparent
from fairlane.worker_protocol.messages import Task

Tell = Callable[[float, str], None]
Stream = Callable[[Any], None]


class TaskFailed(Exception):
    """Raise it to say how a task failed; any other error is retried. `code` may name a fault, such
    as `invalid_input`."""

    def __init__(self, message: str, *, retriable: bool = False, code: str = "") -> None:
        super().__init__(message)
        self.retriable, self.code = retriable, code


class Context:
    """`model` is what the worker's loader returned for the task's model. `context` holds the
    outputs of earlier steps. `checked_step` is the name of the output that a quality check
    judges."""

    def __init__(
        self, task: Task, tell: Tell, model: Any = None, stream: Stream = lambda _: None
    ) -> None:
        self.task_id, self.task_type = task.id, task.type
        self.attempt, self.trace_id = task.attempt, task.trace
        self.context, self.model_name, self.model = task.context, task.model, model
        self.checked_step = task.checked_step
        self._tell, self._stream = tell, stream
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted: the job was cancelled, its lease is gone, or its
        time is over. An async function is cancelled then. A function in a thread should check this
        from time to time, and return."""
        return self._cancelled

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context header for calls that the task makes, with a span of its own."""
        return traceparent(self.trace_id) if self.trace_id else None

    def progress(self, percent: float, text: str = "") -> None:
        """Reports progress to the job's listeners, about once a second. The last report wins. A
        text of more than 200 characters is cut; a percentage that is NaN is not reported."""
        told = bounded(percent, text)
        if told is not None:
            self._tell(*told)

    def output(self, chunk: Any) -> None:
        """Streams a piece of output, any JSON, to clients that wait for the job's result. Pieces
        are not stored, and may be dropped; the returned result counts. At most 64 KiB each. May be
        called from any thread."""
        self._stream(chunk)

    def cancel(self) -> None:
        self._cancelled = True
