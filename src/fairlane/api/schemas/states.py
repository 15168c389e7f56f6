"""States in the words of task queues: `executing` and `dead_letter`."""

from __future__ import annotations

from fairlane.model.state import State

TASK_WORDS = {State.RUNNING: "executing", State.DEAD: "dead_letter"}


def task_word(state: str | None) -> str | None:
    """None for what is gone."""
    if state not in list(State):
        return None
    return TASK_WORDS.get(State(state), str(state))
