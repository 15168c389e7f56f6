"""The states of tasks and generations on the wire. A running task is `executing` and a dead one a
`dead_letter`; a running generation is `processing` and a dead one `failed`."""

from __future__ import annotations

from fairlane.model.state import State
from fairlane.responses import GenerationStatus, TaskStatus

TASK_STATUSES: dict[State, TaskStatus] = {
    State.QUEUED: "queued",
    State.RUNNING: "executing",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.DEAD: "dead_letter",
}
GENERATION_STATUSES: dict[State, GenerationStatus] = {
    State.QUEUED: "queued",
    State.RUNNING: "processing",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.DEAD: "failed",
}


def task_status(state: State) -> TaskStatus:
    return TASK_STATUSES[state]


def task_status_or_none(state: str | None) -> TaskStatus | None:
    """Returns the task status; None for a task whose record was removed."""
    return TASK_STATUSES.get(State(state)) if state in list(State) else None


def generation_status(state: State) -> GenerationStatus:
    return GENERATION_STATUSES[state]
