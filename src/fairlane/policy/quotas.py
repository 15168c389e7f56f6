"""Admission control and quotas: whether a submit is accepted, which limit refuses it, what is left,
and when it frees. `queue_limits.py` refuses at a full queue."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.errors import Refused
from fairlane.model.tier import Tier, Tiers
from fairlane.policy.queue_limits import admit_in_queue, room

HOUR_MICROSECONDS = 3_600_000_000


class Quota(NamedTuple):
    """The limits of one tier; 0 = none."""

    pending: int = 0
    per_hour: int = 0
    waiting: int = 0

    @property
    def counts_user(self) -> bool:
        return bool(self.pending or self.per_hour)


def quota_of(tiers: Tiers, tier: str, waiting: int) -> Quota:
    """The limits of this tier in a queue that holds `waiting` jobs."""
    own = tiers[tier]
    return Quota(own.pending, own.per_hour, room(waiting, tiers.rank(tier), len(tiers)))


class Usage(NamedTuple):
    """The present usage of one user: jobs queued or running, jobs accepted in the last hour, and
    when the oldest of those was accepted. `waiting` counts the jobs of the whole queue."""

    pending: int = 0
    last_hour: int = 0
    oldest_at: int = 0
    waiting: int = 0

    def plus(self, jobs: int, now: int) -> Usage:
        """The usage after `jobs` more jobs are accepted."""
        return Usage(
            self.pending + jobs,
            self.last_hour + jobs,
            self.oldest_at or now,
            self.waiting + jobs,
        )


def admit(quota: Quota, usage: Usage, jobs: int = 1) -> Refused | None:
    """None if `jobs` more jobs may be accepted, otherwise the limit that refuses them."""
    full = admit_in_queue(quota.waiting, usage.waiting, jobs) if quota.waiting else None
    if full is not None:
        return full
    if quota.pending and usage.pending + jobs > quota.pending:
        left = max(0, quota.pending - usage.pending)
        return Refused(
            "too_many_pending",
            f"a user may have at most {quota.pending} jobs queued or running, {left} left; "
            "wait for one to finish",
            limit=quota.pending,
            left=left,
        )
    if quota.per_hour and usage.last_hour + jobs > quota.per_hour:
        left = max(0, quota.per_hour - usage.last_hour)
        return Refused(
            "too_many_this_hour",
            f"a user may submit at most {quota.per_hour} jobs per hour, {left} left; "
            "try again later",
            limit=quota.per_hour,
            left=left,
            frees_at=usage.oldest_at + HOUR_MICROSECONDS if usage.oldest_at else None,
        )
    return None


def admit_duration(tier: Tier, duration: float) -> Refused | None:
    if tier.max_duration and duration > tier.max_duration:
        return Refused(
            "duration_too_long",
            f"a duration of {duration:g} s is longer than tier {tier.name} allows "
            f"({tier.max_duration:g} s); ask for a shorter one, or use a better tier",
            limit=int(tier.max_duration),
        )
    return None
