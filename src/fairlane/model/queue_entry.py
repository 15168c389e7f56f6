"""A queue entry: what the index knows about a waiting job. It is enough to choose the job."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.job import Band


class Entry(NamedTuple):
    """True only at this rev. `score` is the job's place, in microseconds: for a skip the time of
    payment, otherwise the moment it would have been submitted had it waited in one piece.
    `ready_at` in the future keeps it out of line until then. `cap` is how many jobs its user may
    have running (0 = any number). `announced` is the best rank its owner has been told."""

    id: str
    rev: int
    lane: str
    band: Band
    rank: int
    score: int
    ready_at: int
    user: str
    model: str
    cost: int
    cap: int = 0
    announced: int = 99


class WaitingStep(NamedTuple):
    """What a job's place in line is computed from. `level` is the tier its owner has been told."""

    job: str
    rev: int
    lane: str
    band: Band
    tier: str
    level: str
    ready_at: int
    waited: int
    paid_at: int
    user: str
    model: str


class Start(NamedTuple):
    """The last start of a user's job in one service and tier: where its ageing clock stands."""

    service: str
    rank: int
    user: str
    at: int
    job: str
