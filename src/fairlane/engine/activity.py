"""Activity counters: what the whole system did in periods of 15 s, by service and tier. Each
process counts its own jobs and adds them to the shared counts of the index once a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import add, sub
from typing import NamedTuple

from fairlane.errors import NotReady
from fairlane.index.index import ACTIVITY_PERIOD_MICROSECONDS, ACTIVITY_PERIODS, Index
from fairlane.policy.wait_histogram import bucket_of

ARRIVED, STARTED, IN_TARGET = "arrived", "started", "in_target"
COMPLETED, WORK, FINISHED = "completed", "work_ms", "finished"
ESTIMATED, KEPT = "estimated", "kept"
COUNTED = (ARRIVED, STARTED, IN_TARGET, COMPLETED, WORK, ESTIMATED, KEPT, FINISHED)
"""The counts in the order of the fields of ActivityCounts."""

WAIT_PREFIX = "w"
MAX_NAMES = 10_000


@lru_cache(MAX_NAMES)
def _name(service: str, tier: str, kind: str) -> str:
    return f"{service}|{tier}|{kind}"


@lru_cache(MAX_NAMES)
def _parsed(name: str) -> tuple[str, str, str]:
    service, tier, kind = name.split("|")
    return service, tier, kind


def period_of(at: int) -> int:
    """The number of the period that this time (µs) is in."""
    return at // ACTIVITY_PERIOD_MICROSECONDS


class ActivityCounts(NamedTuple):
    """What happened to the jobs of one service and tier. `started` counts attempts, `in_target`
    those within the tier's target. `completed` and `work_ms` are successful attempts and their
    total time. `estimated` counts started jobs that had an ETA, `kept` those that started by its
    p90. `finished` counts jobs that ended."""

    arrived: int = 0
    started: int = 0
    in_target: int = 0
    completed: int = 0
    work_ms: int = 0
    estimated: int = 0
    kept: int = 0
    finished: int = 0

    def plus(self, other: ActivityCounts) -> ActivityCounts:
        return ActivityCounts._make(map(add, self, other))

    def minus(self, other: ActivityCounts) -> ActivityCounts:
        return ActivityCounts._make(map(sub, self, other))


class TierActivity(NamedTuple):
    """The counts of one service and tier, and the histogram of the waits before starts."""

    counts: ActivityCounts
    waits: Mapping[int, int]


class PeriodActivity(NamedTuple):
    period: int
    tiers: Mapping[tuple[str, str], TierActivity]


class Activity:
    """The counts of this process that are not yet in the index."""

    def __init__(self) -> None:
        self._counts: dict[int, Counter[str]] = {}

    def arrived(self, service: str, tier: str, at: int, n: int) -> None:
        self._of(at)[_name(service, tier, ARRIVED)] += n

    def started(
        self, service: str, tier: str, waits: Sequence[int], target: float, at: int
    ) -> None:
        """Attempts started, each so many µs after it could. `target` is in seconds; 0 = none."""
        counts = self._of(at)
        counts[_name(service, tier, STARTED)] += len(waits)
        for bucket, n in Counter(map(bucket_of, waits)).items():
            counts[_name(service, tier, f"{WAIT_PREFIX}{bucket}")] += n
        if target:
            longest = target * 1_000_000
            counts[_name(service, tier, IN_TARGET)] += sum(wait <= longest for wait in waits)

    def completed(self, service: str, tier: str, took: Sequence[int], at: int) -> None:
        """Attempts succeeded, each after so many µs."""
        counts = self._of(at)
        counts[_name(service, tier, COMPLETED)] += len(took)
        counts[_name(service, tier, WORK)] += sum(round(each / 1000) for each in took)

    def finished(self, service: str, tier: str, at: int, n: int) -> None:
        self._of(at)[_name(service, tier, FINISHED)] += n

    def foretold(self, service: str, tier: str, at: int, *, kept: bool) -> None:
        """A job with an ETA has started, by its p90 (`kept`) or later."""
        counts = self._of(at)
        counts[_name(service, tier, ESTIMATED)] += 1
        if kept:
            counts[_name(service, tier, KEPT)] += 1

    def _of(self, at: int) -> Counter[str]:
        period = period_of(at)
        found = self._counts.get(period)
        if found is None:
            found = self._counts[period] = Counter()
        return found

    async def publish(self, index: Index, now: int) -> None:
        """Add the counts to those of all processes. While the index does not answer they are kept
        as long as they matter."""
        taken, self._counts = self._counts, {}
        for period, counts in taken.items():
            try:
                await index.count_activity(period, counts)
            except NotReady:
                if period > period_of(now) - ACTIVITY_PERIODS:
                    self._counts.setdefault(period, Counter()).update(counts)


async def read_activity(
    activity: Activity, index: Index, since: int, now: int
) -> list[PeriodActivity]:
    """The activity of all processes from period `since` on, oldest first. That of other processes
    is up to a second old. None while the index does not answer."""
    found: Mapping[int, Mapping[str, int]] = {}
    with suppress(NotReady):
        await activity.publish(index, now)
        found = await index.activity(since)
    return [PeriodActivity(period, _tiers(found[period].items())) for period in sorted(found)]


def _tiers(counts: Iterable[tuple[str, int]]) -> dict[tuple[str, str], TierActivity]:
    grouped: dict[tuple[str, str], dict[str, int]] = {}
    for name, n in counts:
        service, tier, kind = _parsed(name)
        grouped.setdefault((service, tier), {})[kind] = n
    return {key: _tier(kinds) for key, kinds in grouped.items()}


def _tier(kinds: Mapping[str, int]) -> TierActivity:
    start = len(WAIT_PREFIX)
    waits = {
        int(kind[start:]): n
        for kind, n in kinds.items()
        if kind.startswith(WAIT_PREFIX) and kind[start:].isdigit()
    }
    return TierActivity(ActivityCounts._make(kinds.get(kind, 0) for kind in COUNTED), waits)
