"""The state machine of a job. Every change of state goes through this table of transitions."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"


class Move(StrEnum):
    CLAIM = "claim"
    ADVANCE = "advance"
    COMPLETE = "complete"
    RETRY = "retry"
    GIVE_BACK = "give back"
    FAIL = "fail"
    BURY = "bury"
    CANCEL = "cancel"
    SKIP = "skip"
    PROMOTE = "promote"
    GIVE_UP = "give up"
    RESUME = "resume"
    REPLAY = "replay"
    REOPEN = "reopen"


LIVE = frozenset({State.QUEUED, State.RUNNING})
ENDED = frozenset(State) - LIVE

MOVES: dict[Move, dict[State, State]] = {
    Move.CLAIM: {State.QUEUED: State.RUNNING},
    Move.ADVANCE: {State.RUNNING: State.QUEUED},
    Move.COMPLETE: {State.RUNNING: State.COMPLETED},
    Move.RETRY: {State.RUNNING: State.QUEUED},
    Move.GIVE_BACK: {State.RUNNING: State.QUEUED},
    Move.FAIL: {State.RUNNING: State.FAILED},
    Move.BURY: {State.RUNNING: State.DEAD},
    Move.CANCEL: {State.QUEUED: State.CANCELLED, State.RUNNING: State.CANCELLED},
    Move.SKIP: {State.QUEUED: State.QUEUED},
    Move.PROMOTE: {State.QUEUED: State.QUEUED},
    Move.GIVE_UP: {State.QUEUED: State.FAILED},
    Move.RESUME: {State.FAILED: State.QUEUED},
    Move.REPLAY: {State.FAILED: State.QUEUED, State.DEAD: State.QUEUED},
    Move.REOPEN: {State.COMPLETED: State.RUNNING, State.FAILED: State.RUNNING},
}
"""For each move, the states from which it is possible, and the state after it. REOPEN is for a
fan-out whose cell runs again. A fan-out itself becomes running with its first cell and ends with
its last."""


def moved(state: State, move: Move) -> State | None:
    """The state after the move, or None if the move is not possible."""
    return MOVES[move].get(state)


class Code(StrEnum):
    """The reason why a job failed or became a dead letter."""

    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    CELLS_FAILED = "CELLS_FAILED"
    STOPPED = "STOPPED"
    INVALID_INPUT = "INVALID_INPUT"
    SERVICE_ERROR = "SERVICE_ERROR"
    RESULT_TOO_LARGE = "RESULT_TOO_LARGE"
    QUALITY = "QUALITY"
    MAX_ATTEMPTS = "MAX_ATTEMPTS"


RESUMABLE = frozenset({Code.RESOURCE_EXHAUSTED, Code.CELLS_FAILED, Code.STOPPED})
