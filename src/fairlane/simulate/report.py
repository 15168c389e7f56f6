"""The report of a run: waits, shares, gaps, fairness, utilisation. Times are seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fairlane.simulate.run import Run, SimulatedJob
from fairlane.units import SECOND

BUCKETS = 60
WINDOWS = 20
"""The number of windows of the span in which fairness is measured."""

MAX_WINDOWS = 1_000
"""The most windows. Where jobs still start long after the last arrival, the windows are longer."""


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """Waits of one tier, in one service or in all. `within` is the share that waited no longer than
    its target. `gap` is the longest time in which a user had waiting jobs and none of them started.
    `jain` is Jain's fairness index of users whose jobs wait all the time (1 = equal)."""

    tier: str
    service: str
    jobs: int
    p50: float
    p95: float
    p99: float
    longest: float
    target: float
    within: float | None
    gap: float
    jain: float | None


@dataclass(frozen=True, slots=True)
class Etas:
    """Accuracy of the ETAs given at submit: the share of jobs that waited no longer than the p90,
    and the share whose p50 was within a factor of two. The latter is counted twice: in whole
    seconds of at least one, as users see them, and to the microsecond."""

    told: int
    covered: float
    within_two: float
    strictly: float


@dataclass(frozen=True, slots=True)
class Report:
    order: str
    jobs: int
    served: int
    refused: dict[str, int]
    gave_up: int
    span: float
    places: int
    utilisation: float | None
    within: float | None
    loads: int
    load_share: float | None
    eta: Etas | None
    tiers: list[WaitTimes]
    services: list[WaitTimes]
    over_time: dict[str, list[float | None]] = field(default_factory=dict)
    """p95 of the waits of each tier, by time of arrival, in equal parts of the span."""


class Waited:
    """One job: how long it waited before its own work began, over all steps."""

    __slots__ = ("at", "rank", "steps", "wait")

    def __init__(self, at: int, rank: int) -> None:
        self.at, self.rank = at, rank
        self.wait = self.steps = 0


def measure(run: Run, names: Sequence[str], targets: Sequence[float]) -> Report:
    """`targets` are the longest intended waits per tier; 0 = none."""
    jobs = _jobs(run)
    by_rank: dict[int, list[SimulatedJob]] = defaultdict(list)
    by_both: dict[tuple[str, int], list[SimulatedJob]] = defaultdict(list)
    arrivals = run.workload.arrivals
    for each in run.served:
        rank = arrivals[each.job].rank
        by_rank[rank].append(each)
        by_both[each.service, rank].append(each)
    span = max(1, run.workload.span)
    tiers = []
    for rank, name in enumerate(names):
        waits = sorted(job.wait for job in jobs.values() if job.rank == rank)
        if waits:
            tiers.append(_waits(run, name, "", waits, by_rank[rank], targets[rank]))
    services = []
    for (service, rank), served in sorted(by_both.items()):
        waits = sorted(each.begun - each.ready_at for each in served)
        services.append(_waits(run, names[rank], service, waits, served, targets[rank]))
    aimed = [(job.wait, targets[job.rank]) for job in jobs.values() if targets[job.rank]]
    places = sum(not place.boundless for place in run.places)
    return Report(
        order=run.order,
        jobs=len(arrivals),
        served=len(jobs),
        refused=dict(run.refused),
        gave_up=run.gave_up,
        span=span / SECOND,
        places=places,
        utilisation=_useful(run) / (places * span) if places else None,
        within=_share(wait <= target * SECOND for wait, target in aimed) if aimed else None,
        loads=run.loads,
        load_share=run.load_time / (places * max(span, _end(run))) if places else None,
        eta=etas(run),
        tiers=tiers,
        services=services,
        over_time=_over_time(jobs.values(), names, span),
    )


def _jobs(run: Run) -> dict[int, Waited]:
    arrivals = run.workload.arrivals
    found: dict[int, Waited] = {}
    for job, _, ready_at, _, begun, _ in run.served:
        waited = found.get(job)
        if waited is None:
            waited = found[job] = Waited(arrivals[job].at, arrivals[job].rank)
        waited.wait += begun - ready_at
        waited.steps += 1
    return {job: each for job, each in found.items() if each.steps == len(arrivals[job].seconds)}


def _waits(
    run: Run, tier: str, service: str, waits: list[int], served: list[SimulatedJob], target: float
) -> WaitTimes:
    """`waits` are sorted."""
    users = _by_user(run, served)
    return WaitTimes(
        tier=tier,
        service=service,
        jobs=len(waits),
        p50=quantile(waits, 0.5) / SECOND,
        p95=quantile(waits, 0.95) / SECOND,
        p99=quantile(waits, 0.99) / SECOND,
        longest=waits[-1] / SECOND,
        target=target,
        within=_share(wait <= target * SECOND for wait in waits) if target else None,
        gap=max(longest_gap(each) for each in users) / SECOND,
        jain=fairness(users, max(1, run.workload.span)),
    )


def quantile(ranked: Sequence[int], part: float) -> int:
    """The quantile of sorted values: the smallest value that this part of them does not exceed."""
    return ranked[max(0, -(-round(part * len(ranked) * 1000) // 1000) - 1)]


def _share(good: Iterable[bool]) -> float:
    found = list(good)
    return sum(found) / len(found)


def _useful(run: Run) -> int:
    """Time spent on jobs' own work inside the span of the arrivals."""
    span = run.workload.span
    boundless = {
        service
        for place in run.places
        if place.boundless
        for service in place.worker.services or ()
    }
    return sum(
        max(0, min(each.ended, span) - min(each.begun, span))
        for each in run.served
        if each.service not in boundless
    )


def _end(run: Run) -> int:
    return max((each.ended for each in run.served), default=0)


def _over_time(
    jobs: Iterable[Waited], names: Sequence[str], span: int
) -> dict[str, list[float | None]]:
    buckets: dict[int, list[list[int]]] = {}
    for job in jobs:
        of_tier = buckets.setdefault(job.rank, [[] for _ in range(BUCKETS)])
        of_tier[min(BUCKETS - 1, job.at * BUCKETS // span)].append(job.wait)
    return {
        names[rank]: [
            quantile(sorted(waits), 0.95) / SECOND if waits else None for waits in buckets[rank]
        ]
        for rank in sorted(buckets)
    }


def etas(run: Run) -> Etas | None:
    told = [(eta, wait) for eta, wait in run.told.values() if wait >= 0]
    if not told:
        return None
    return Etas(
        told=len(told),
        covered=_share(wait <= eta.p90 for eta, wait in told),
        within_two=within_two(run, SECOND),
        strictly=within_two(run, 0),
    )


def within_two(run: Run, least: int) -> float:
    """The share of p50s within a factor of two of the wait. Predictions and waits below `least`
    count as `least`."""
    pairs = [
        (max(eta.p50, least), max(wait, least)) for eta, wait in run.told.values() if wait >= 0
    ]
    return _share(told <= 2 * wait and wait <= 2 * told for told, wait in pairs)


# --- users ---------------------------------------------------------------------------------------
def _by_user(run: Run, served: list[SimulatedJob]) -> list[list[SimulatedJob]]:
    users: dict[str, list[SimulatedJob]] = defaultdict(list)
    for each in served:
        users[run.workload.arrivals[each.job].user].append(each)
    return list(users.values())


def longest_gap(served: list[SimulatedJob]) -> int:
    """The longest time in which this user had waiting jobs and none of them started."""
    events = sorted(
        [(each.ready_at, 0) for each in served] + [(each.started, 1) for each in served]
    )
    longest = waiting = since = 0
    for at, starts in events:
        if waiting:
            longest = max(longest, at - since)
        if starts:
            waiting -= 1
            since = at
        else:
            since = since if waiting else at
            waiting += 1
    return longest


def fairness(users: list[list[SimulatedJob]], span: int) -> float | None:
    """Jain's fairness index of the work begun for users whose jobs waited through a whole window: 1
    if all got the same, 1/n if one got everything. Averaged over windows, weighted by users."""
    last = max((each.started for served in users for each in served), default=0)
    window = max(1, span // WINDOWS, last // MAX_WINDOWS)
    shares: dict[int, list[int]] = defaultdict(list)
    for served in users:
        begun: dict[int, int] = defaultdict(int)
        for each in served:
            begun[each.started // window] += each.ended - each.begun
        for start, end in _waiting_times(served):
            for number in range(-(-start // window), end // window):
                shares[number].append(begun[number])
    total = weight = 0.0
    for each_window in shares.values():
        squares = sum(each * each for each in each_window)
        if len(each_window) > 1 and squares:
            total += sum(each_window) ** 2 / squares
            weight += len(each_window)
    return total / weight if weight else None


def _waiting_times(served: list[SimulatedJob]) -> Iterator[tuple[int, int]]:
    """The periods in which some of this user's jobs waited."""
    start = end = -1
    for each in sorted(served, key=lambda each: each.ready_at):
        if each.ready_at > end:
            if end > start:
                yield start, end
            start, end = each.ready_at, each.started
        else:
            end = max(end, each.started)
    if end > start:
        yield start, end
