"""The last 15 minutes: activity by period, start rates, model residency of slots and the service
that users got. It has a fixed size."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlane.engine.activity import ActivityCounts, PeriodActivity, TierActivity, period_of
from fairlane.index.index import ACTIVITY_PERIODS, TakenSlot
from fairlane.policy.wait_histogram import quantile
from fairlane.units import SECOND

RATE_MICROSECONDS = 10 * SECOND
"""Rates are averages of this time."""

WAIT_PERIODS = 20
"""p50 and p95 of a tier's waits are those of the last 5 minutes."""

SPAN_MICROSECONDS = 900 * SECOND
MAX_SEGMENTS = 2_000
"""The most residency segments that are kept per service."""

MAX_USERS = 500
"""The most users whose service is added up, per service and period."""

Key = tuple[str, str]
NOTHING = TierActivity(ActivityCounts(), {})


@dataclass(slots=True)
class Segment:
    """One job in one slot. `until` is None while it runs."""

    pool: str
    n: int
    token: str
    job: str
    user: str
    rank: int
    model: str
    since: int
    until: int | None = None


class ServedShare(NamedTuple):
    """Seconds of slot time that a user got, and that an equal split of each tier's slot time
    between the users who wanted it would have given."""

    served: float
    due: float


class RateMark(NamedTuple):
    """How many attempts and jobs were counted up to a time."""

    at: int
    starts: Mapping[Key, int]
    arrivals: Mapping[str, int]


class RecentHistory:
    def __init__(self) -> None:
        self._periods: dict[int, Mapping[Key, TierActivity]] = {}
        self._totals: dict[Key, ActivityCounts] = {}
        self._starts: Counter[Key] = Counter()
        self._arrivals: Counter[str] = Counter()
        self._marks: deque[RateMark] = deque()
        self._lines: dict[tuple[str, int], float | None] = {}
        self._open: dict[str, dict[tuple[str, int], Segment]] = {}
        self._closed: dict[str, deque[Segment]] = {}
        self._shares: dict[int, dict[str, dict[str, list[float]]]] = {}

    # --- activity ----------------------------------------------------------------------------
    @property
    def next_period(self) -> int:
        """The first period that has to be read: earlier ones do not change any more."""
        return max(self._periods) - 1 if self._periods else 0

    def add(self, found: Sequence[PeriodActivity], now: int) -> None:
        counting = bool(self._periods)  # the first reading has all that happened before
        for period, tiers in found:
            self._replace(period, tiers, counting=counting)
        newest = max(period_of(now), *self._periods) if self._periods else period_of(now)
        self._periods.setdefault(newest, {})
        for old in [each for each in self._periods if each <= newest - ACTIVITY_PERIODS]:
            self._replace(old, {}, counting=False)
            del self._periods[old]
        self._lines = {
            key: value for key, value in self._lines.items() if key[1] > newest - ACTIVITY_PERIODS
        }
        self._marks.append(RateMark(now, dict(self._starts), dict(self._arrivals)))
        while len(self._marks) > 2 and self._marks[1].at <= now - RATE_MICROSECONDS:
            self._marks.popleft()

    def _replace(self, period: int, tiers: Mapping[Key, TierActivity], *, counting: bool) -> None:
        before = self._periods.get(period, {})
        for key in {*tiers, *before}:
            more = tiers.get(key, NOTHING).counts.minus(before.get(key, NOTHING).counts)
            self._totals[key] = self._totals.get(key, ActivityCounts()).plus(more)
            if not any(self._totals[key]):
                del self._totals[key]
            if counting:
                self._starts[key] += more.started
                self._arrivals[key[0]] += more.arrived
        self._periods[period] = tiers

    def started_per_second(self, service: str, tier: str) -> float:
        first, last = self._marks[0], self._marks[-1]
        key = (service, tier)
        return _rate(last.starts.get(key, 0) - first.starts.get(key, 0), first.at, last.at)

    def arrivals_per_second(self, service: str) -> float:
        first, last = self._marks[0], self._marks[-1]
        new = last.arrivals.get(service, 0) - first.arrivals.get(service, 0)
        return _rate(new, first.at, last.at)

    def arrived(self, services: Iterable[str]) -> int:
        """Jobs that were submitted since this process began to look; it never falls."""
        return sum(self._arrivals[each] for each in services)

    def total(self, service: str, tier: str) -> ActivityCounts:
        """The last 15 minutes of a service and tier."""
        return self._totals.get((service, tier), ActivityCounts())

    def waits(self, service: str, tier: str) -> tuple[float | None, float | None]:
        """p50 and p95 (seconds) of the waits of the last 5 minutes."""
        buckets: dict[int, int] = {}
        newest = max(self._periods)
        for period in range(newest - WAIT_PERIODS + 1, newest + 1):
            found = self._periods.get(period, {}).get((service, tier), NOTHING)
            for bucket, n in found.waits.items():
                buckets[bucket] = buckets.get(bucket, 0) + n
        return quantile(buckets, 0.5), quantile(buckets, 0.95)

    def p95_line(self, service: str) -> list[float | None]:
        """p95 (seconds) of the waits of all tiers in each of the last 60 periods, oldest first."""
        newest = max(self._periods)
        return [
            self._p95(service, period, is_final=period < newest - 1)
            for period in range(newest - ACTIVITY_PERIODS + 2, newest + 1)
        ]

    def _p95(self, service: str, period: int, *, is_final: bool) -> float | None:
        if is_final and (service, period) in self._lines:
            return self._lines[service, period]
        buckets = Counter[int]()
        for (name, _), each in self._periods.get(period, {}).items():
            if name == service:
                buckets.update(each.waits)
        found = rounded(quantile(buckets, 0.95))
        if is_final:
            self._lines[service, period] = found
        return found

    # --- slots -------------------------------------------------------------------------------
    def note_slots(self, service: str, held: Iterable[TakenSlot], now: int) -> None:
        """Note which jobs are in the slots of a service now."""
        open_ = self._open.setdefault(service, {})
        closed = self._closed.setdefault(service, deque(maxlen=MAX_SEGMENTS))
        seen = set()
        for each in held:
            entry, place = each.entry, (each.slot.pool, each.slot.n)
            if entry is None:
                continue
            seen.add(place)
            known = open_.get(place)
            if known is not None and known.token == each.token:
                continue
            if known is not None:
                _close(known, closed, min(now, each.at))
            open_[place] = Segment(
                *place, each.token, entry.id, entry.user, entry.rank, entry.model, each.at
            )
        for place in [each for each in open_ if each not in seen]:
            _close(open_.pop(place), closed, now)
        while closed and (closed[0].until or 0) < now - SPAN_MICROSECONDS:
            closed.popleft()

    def residency(self, service: str) -> Iterator[Segment]:
        """The jobs in the slots of a service in the last 15 minutes. Jobs that began and ended
        between two samples are missing."""
        yield from self._closed.get(service, ())
        yield from self._open.get(service, {}).values()

    def note_shares(
        self,
        service: str,
        running: Sequence[tuple[int, str]],
        wanting: Mapping[int, int],
        span: int,
        now: int,
    ) -> None:
        """Add `span` µs of service to each running (rank, user). `wanting` is how many users of
        each rank want the service."""
        by_service = self._shares.setdefault(period_of(now), {})
        for old in [each for each in self._shares if each <= period_of(now) - ACTIVITY_PERIODS]:
            del self._shares[old]
        users = by_service.setdefault(service, {})
        busy = Counter(rank for rank, _ in running)
        own = {rank: {user for its, user in running if its == rank} for rank in busy}
        seconds = span / SECOND
        for _, user in running:
            if user in users or len(users) < MAX_USERS:
                users.setdefault(user, [0.0, 0.0])[0] += seconds
        for rank, its_users in own.items():
            due = busy[rank] * seconds / max(len(its_users), wanting.get(rank, 0))
            for user in its_users & users.keys():
                users[user][1] += due

    def shares(self, service: str) -> dict[str, ServedShare]:
        """The service that each user got in the last 15 minutes."""
        found: dict[str, list[float]] = {}
        for by_service in self._shares.values():
            for user, (served, due) in by_service.get(service, {}).items():
                total = found.setdefault(user, [0.0, 0.0])
                total[0] += served
                total[1] += due
        return {user: ServedShare(*each) for user, each in found.items()}


def _close(segment: Segment, closed: deque[Segment], at: int) -> None:
    segment.until = max(segment.since, at)
    closed.append(segment)


def _rate(n: int, began: int, ended: int) -> float:
    """Events per second; two digits below 1, one above."""
    rate = n * SECOND / (ended - began) if ended > began else 0.0
    return round(rate, 2) if rate < 1 else round(rate, 1)


def rounded(value: float | None) -> float | None:
    """Two significant digits: more would only flicker."""
    if value is None or value == 0:
        return value
    return float(f"{value:.2g}")
