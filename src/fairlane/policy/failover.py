"""Failover: in which other regions a retry may run after its region has failed, and when."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.service import Service
from fairlane.model.step import Lane
from fairlane.units import SECOND

REGION_RETURN_MICROSECONDS = 60 * SECOND
"""The time for which a retry stays away from the region that failed."""


class Destination(NamedTuple):
    """The lane of a retry and the time at which it is ready."""

    lane: str
    ready_at: int


class RegionFailure(NamedTuple):
    """A failed attempt at `now`. `own_lane` is the lane of its step, `lane` the one it was claimed
    from: they differ if the job had left another region before. `unavailable`: the region did not
    answer. `free`: its circuit breaker is open, so the failure cost no attempt. `probe_at` is when
    the breaker lets the next call through, `delay` the backoff (µs)."""

    own_lane: str
    lane: str
    region: str
    now: int
    probe_at: int
    delay: int
    unavailable: bool
    free: bool


def other_regions(service: Service, lane: str, failed_region: str) -> tuple[str, ...]:
    """The configured regions that this lane allows, without the one that failed."""
    allowed = Lane.parse(lane).regions or tuple(sorted(service.regions))
    return tuple(each for each in allowed if each != failed_region and each in service.regions)


def fail_over(service: Service, failure: RegionFailure) -> Destination:
    """Leave the region that failed. If it was unavailable, the retry is ready at once: neither the
    backoff nor the `Retry-After` of that region applies elsewhere, and regions that do not answer
    either get no jobs. A job that meets a second such region pays with its attempts, so it waits
    for its backoff. A job that may run in no other region never leaves it: it waits for the next
    probe, or for a minute if the region is not known to be unavailable."""
    own_lane, now = failure.own_lane, failure.now
    remaining = other_regions(service, own_lane, failure.region)
    if not remaining:
        later = max(failure.probe_at + failure.delay, now + REGION_RETURN_MICROSECONDS)
        return Destination(own_lane, failure.probe_at if failure.free else later)
    lane = Lane.parse(own_lane)._replace(regions=remaining).name
    is_first = failure.lane == own_lane
    at_once = failure.unavailable and (failure.free or is_first)
    return Destination(lane, now if at_once else now + failure.delay)


def may_return(lane: str, own_lane: str, ready_at: int, now: int) -> bool:
    """Whether a waiting retry that left a region may run there again: it has waited for the other
    regions long enough."""
    return lane != own_lane and now - ready_at >= REGION_RETURN_MICROSECONDS
