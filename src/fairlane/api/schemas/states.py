"""The states of a task on the wire. `running` is called `executing`, and `dead` `dead_letter`."""

from __future__ import annotations

from fairlane.model.state import State
from fairlane.responses import TaskStatus

TASK_STATUSES: dict[State, TaskStatus] = {
    State.QUEUED: "queued",
    State.RUNNING: "executing",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.DEAD: "dead_letter",
}


def task_status(state: State) -> TaskStatus:
    return TASK_STATUSES[state]


def task_status_or_none(state: str | None) -> TaskStatus | None:
    """Returns the task status; None for a task whose record was removed."""
    return TASK_STATUSES.get(State(state)) if state in list(State) else None
