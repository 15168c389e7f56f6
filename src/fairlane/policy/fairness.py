"""Fair queueing between users of a tier: start-time fair queueing, weighted by cost."""

from __future__ import annotations


def lift(counter: int, virtual_time: int) -> tuple[int, int]:
    """(counter, virtual time) when a user begins to wait. A user cannot save up share while away.
    Each arrival moves virtual time on by one microsecond, so equal users are served in order of
    arrival."""
    if counter > virtual_time:
        return counter, virtual_time
    return virtual_time + 1, virtual_time + 1


def charge(counter: int, refund: int, cost: int) -> tuple[int, int]:
    """(counter, refund) when a job of this estimated cost starts. A refund is used up first."""
    used = min(refund, cost)
    return counter + cost - used, refund - used


def correct(counter: int, refund: int, estimated: int, actual: int) -> tuple[int, int]:
    """(counter, refund) when the actual cost is known: a higher cost is charged now, a lower one
    becomes a refund."""
    if actual >= estimated:
        return counter + actual - estimated, refund
    return counter, refund + estimated - actual
