"""Admission control and quotas: whether a submit is accepted, which limit refuses it, what is left,
and when it frees. `queue_limits.py` refuses at a full queue."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.errors import Refused
from fairlane.model.catalog import Catalog
from fairlane.model.tier import Tier
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


def quota_of(catalog: Catalog, tier: str) -> Quota:
    """The limits of this tier."""
    own, rank = catalog.tiers[tier], catalog.tiers.rank(tier)
    share = catalog.limits.lowest_tier_share
    return Quota(
        own.pending, own.per_hour, room(catalog.limits.waiting, rank, len(catalog.tiers), share)
    )


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
    """None if `jobs` more jobs may be accepted, otherwise the limit that refuses them: the hourly
    limit, then the pending jobs, then the whole queue."""
    excess = hour_excess(quota, usage, jobs)
    if excess:
        left = max(0, quota.per_hour - usage.last_hour)
        return Refused(
            "too_many_this_hour",
            f"a user may submit at most {quota.per_hour} jobs per hour, {left} left; "
            "try again later",
            limit=quota.per_hour,
            left=left,
            frees_at=usage.oldest_at + HOUR_MICROSECONDS if excess <= usage.last_hour else None,
            setting="tiers.per_hour",
        )
    if quota.pending and usage.pending + jobs > quota.pending:
        left = max(0, quota.pending - usage.pending)
        return Refused(
            "too_many_pending",
            f"a user may have at most {quota.pending} jobs queued or running, {left} left; "
            "wait for one to finish",
            limit=quota.pending,
            left=left,
            setting="tiers.pending",
        )
    if quota.waiting:
        return admit_in_queue(quota.waiting, usage.waiting, jobs)
    return None


def hour_excess(quota: Quota, usage: Usage, jobs: int) -> int:
    """How many jobs of the last hour must become an hour old before `jobs` more fit: 0 if they fit
    now, more than there are if they never fit."""
    return max(0, usage.last_hour + jobs - quota.per_hour) if quota.per_hour else 0


def admit_duration(tier: Tier, duration: float) -> Refused | None:
    if tier.max_duration and duration > tier.max_duration:
        return Refused(
            "duration_too_long",
            f"a duration of {duration:g} s is longer than tier {tier.name} allows "
            f"({tier.max_duration:g} s); ask for a shorter one, or use a better tier",
            limit=int(tier.max_duration),
            setting="tiers.max_duration",
        )
    return None
