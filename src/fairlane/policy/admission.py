"""Quotas and admission: whether a submit is accepted, which limit refuses it, what is left, and
when it frees."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.errors import Refused
from fairlane.model.tier import Tier, Tiers

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
    """The limits of this tier in a queue that holds so many."""
    own = tiers[tier]
    return Quota(own.pending, own.per_hour, room(waiting, tiers.rank(tier), len(tiers)))


def room(most: int, rank: int, tiers: int) -> int:
    """How many of `most` places are for a tier: all for the best, half for the lowest, those in
    between at equal steps. So a full line sheds the lowest tier first."""
    return most - most * rank // (2 * max(1, tiers - 1))


class Usage(NamedTuple):
    """What one user has now: queued or running, accepted in the last hour, and when the oldest
    of those was accepted; and how many jobs wait in the whole queue."""

    pending: int = 0
    last_hour: int = 0
    oldest_at: int = 0
    waiting: int = 0

    def plus(self, jobs: int, now: int) -> Usage:
        """The usage after `jobs` more have been accepted."""
        return Usage(
            self.pending + jobs,
            self.last_hour + jobs,
            self.oldest_at or now,
            self.waiting + jobs,
        )


def admit(quota: Quota, usage: Usage, jobs: int = 1) -> Refused | None:
    """None if `jobs` more may come in, otherwise the limit that stops them."""
    if quota.waiting and usage.waiting + jobs > quota.waiting:
        return Refused(
            "queue_full",
            f"the queue holds {quota.waiting} jobs before this tier is refused; try again later",
            limit=quota.waiting,
            left=max(0, quota.waiting - usage.waiting),
        )
    if quota.pending and usage.pending + jobs > quota.pending:
        left = max(0, quota.pending - usage.pending)
        return Refused(
            "too_many_pending",
            f"at most {quota.pending} jobs queued or running, {left} left; wait for one to finish",
            limit=quota.pending,
            left=left,
        )
    if quota.per_hour and usage.last_hour + jobs > quota.per_hour:
        left = max(0, quota.per_hour - usage.last_hour)
        return Refused(
            "too_many_this_hour",
            f"at most {quota.per_hour} jobs an hour, {left} left",
            limit=quota.per_hour,
            left=left,
            frees_at=usage.oldest_at + HOUR_MICROSECONDS if usage.oldest_at else None,
        )
    return None


def admit_waiting(service: str, most: int, waiting: int, jobs: int = 1) -> Refused | None:
    """None if `jobs` more may wait for this service beside those that do."""
    if waiting + jobs <= most:
        return None
    return Refused(
        "queue_full",
        f"at most {most} jobs of this tier wait for {service}, and {waiting} do; try again later",
        limit=most,
        left=max(0, most - waiting),
    )


def admit_duration(tier: Tier, duration: float) -> Refused | None:
    if tier.max_duration and duration > tier.max_duration:
        return Refused(
            "duration_too_long",
            f"{duration:g} s is longer than tier {tier.name} allows ({tier.max_duration:g} s)",
            limit=int(tier.max_duration),
        )
    return None
