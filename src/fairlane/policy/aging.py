"""Aging and promotion: a waiting job counts as a better tier at fixed thresholds. This is computed
when it is needed."""

from __future__ import annotations

from typing import NamedTuple

Thresholds = tuple[tuple[int, int], ...]
"""(rank reached, microseconds of waiting), soonest first."""

RESERVE_AFTER_PATIENCES = 4
"""Multiples of its patience that a job must have waited before it may reserve the last slot of its
pools."""


def level(rank: int, waited: int, thresholds: Thresholds) -> int:
    """The rank that a job counts as: its own, or the best one whose threshold its wait has
    passed."""
    reached = rank
    for better, after in thresholds:
        if waited < after:
            break
        reached = better
    return reached


def next_promotion(waited: int, thresholds: Thresholds) -> tuple[int, int] | None:
    """(rank, microseconds until then) of the next promotion."""
    for better, after in thresholds:
        if waited < after:
            return better, after - waited
    return None


class Starts(NamedTuple):
    """When a user's jobs last started in one service and tier: the latest start, its job, and the
    latest start of another job."""

    at: int = 0
    job: str = ""
    other_at: int = 0

    def after(self, job: str, now: int) -> Starts:
        if job == self.job:
            return Starts(now, job, self.other_at)
        return Starts(now, job, self.at)


def ages_from(score: int, job: str, starts: Starts) -> int:
    """Since when a job ages: its place in time, or the last start of another job of its user. So a
    user who submits many jobs cannot age past other users."""
    return max(score, starts.other_at if starts.job == job else starts.at)
