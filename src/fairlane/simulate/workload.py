"""A workload: users, jobs, arrival times and durations. Times are microseconds from the first
arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from fairlane.errors import InvalidInput
from fairlane.units import SECOND


class Arrival(NamedTuple):
    """One job. `name` is a service or a pipeline, `seconds` the duration of each step, `load` the
    time to load its model if another one is loaded (None = the default)."""

    at: int
    user: str
    rank: int
    name: str
    model: str
    seconds: tuple[int, ...]
    load: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Arrivals in order of time, and their source."""

    source: str
    arrivals: tuple[Arrival, ...]

    @property
    def span(self) -> int:
        """From the first arrival to the last."""
        return self.arrivals[-1].at if self.arrivals else 0

    @property
    def work(self) -> int:
        return sum(sum(each.seconds) for each in self.arrivals)


def workload(source: str, arrivals: Sequence[Arrival]) -> Workload:
    """Sorted, with times from the first arrival."""
    if not arrivals:
        raise InvalidInput(f"{source} has no jobs")
    ordered = sorted(arrivals, key=lambda each: each.at)
    start = ordered[0].at
    return Workload(source, tuple(each._replace(at=each.at - start) for each in ordered))


def folded(given: Workload, period: float) -> Workload:
    """All periods (for example days) laid over one another."""
    length = round(period * SECOND)
    return workload(given.source, [each._replace(at=each.at % length) for each in given.arrivals])


def flattened(given: Workload, window: float) -> Workload:
    """The same amount of work in every period of time: each window lasts in proportion to its work.
    The randomness inside the windows remains."""
    length = round(window * SECOND)
    windows = given.span // length + 1
    work = [0] * windows
    for each in given.arrivals:
        work[each.at // length] += sum(each.seconds)
    total, ends = sum(work), [0]
    for each_work in work:
        ends.append(ends[-1] + each_work)
    span = windows * length
    starts = [end * span // total for end in ends]
    lengths = [after - before for before, after in pairwise(starts)]
    return workload(
        given.source,
        [
            each._replace(
                at=starts[each.at // length]
                + each.at % length * lengths[each.at // length] // length
            )
            for each in given.arrivals
        ],
    )


def faster(given: Workload, times: float) -> Workload:
    """The same jobs in a fraction of the time."""
    moved = tuple(each._replace(at=round(each.at / times)) for each in given.arrivals)
    return replace(given, arrivals=moved)


def with_loads(given: Workload, loads: Sequence[float], seed: int) -> Workload:
    """Every job with the time to load its model, drawn from these seconds. It is the same for every
    order of service."""
    chance = random.Random(seed)
    drawn = tuple(
        each._replace(load=round(chance.choice(loads) * SECOND)) if each.load is None else each
        for each in given.arrivals
    )
    return replace(given, arrivals=drawn)
