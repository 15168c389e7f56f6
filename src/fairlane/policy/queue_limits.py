"""Queue limits: how many jobs of a tier may wait, and the refusal at a full queue. The limit holds
for the whole queue, or for one service. `engine/queue_limits.py` reads the depths."""

from __future__ import annotations

import math

from fairlane.errors import Refused


def room(most: int, rank: int, tiers: int, lowest_share: float) -> int:
    """How many of `most` places a tier may use: all for the best, this share for the lowest, equal
    steps in between. So a full queue sheds the lowest tier first."""
    return most - math.floor(most * (1 - lowest_share) * rank / max(1, tiers - 1))


def admit_in_queue(most: int, waiting: int, jobs: int = 1) -> Refused | None:
    """None if `jobs` more jobs may wait in the whole queue."""
    if waiting + jobs <= most:
        return None
    return Refused(
        "queue_full",
        f"the queue is full: it accepts up to {most} waiting jobs from this tier; try again later",
        limit=most,
        left=max(0, most - waiting),
        setting="limits.waiting",
    )


def admit_waiting(service: str, most: int, waiting: int, jobs: int = 1) -> Refused | None:
    """None if `jobs` more jobs may wait for this service."""
    if waiting + jobs <= most:
        return None
    return Refused(
        "queue_full",
        f"at most {most} jobs may wait for {service} before this tier is refused, and {waiting} "
        "wait; try again later",
        limit=most,
        left=max(0, most - waiting),
        setting="services.waiting",
    )
