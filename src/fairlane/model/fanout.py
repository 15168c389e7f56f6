"""Fan-out: what happens to the other cells when one has failed."""

from __future__ import annotations

from enum import StrEnum


class OnCellFailure(StrEnum):
    """`STOPPING` marks a live fan-out with `STOP` of which a cell has failed: its other cells are
    about to be ended."""

    CONTINUE = "continue"
    STOP = "stop"
    STOPPING = "stopping"
