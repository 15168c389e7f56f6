"""A queue entry: what the index stores about a waiting job, enough to choose the next one."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.job import Band


class Entry(NamedTuple):
    """The entry is valid only at this rev. `score` is the job's place, in microseconds: for a skip
    the time of payment, otherwise the time at which it would have been submitted had it waited
    without a break. `ready_at` in the future delays it until then. `cap` is how many jobs of its
    user may run at once (0 = no limit). `announced` is the best rank of which its owner was
    notified."""

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
    """The last start of a user's job in one service and tier. The user's aging clock starts
    there."""

    service: str
    rank: int
    user: str
    at: int
    job: str
