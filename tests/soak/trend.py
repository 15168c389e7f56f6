"""Whether a series of samples grows: its slope with an interval, and its level early and late."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

WINDOWS = 30
"""Means over so many equal windows are compared: single samples depend on one another."""

INTERVAL = 2.05
"""Standard errors on each side: 95 % with 28 degrees of freedom."""

MOST_SLOPE = 1.0
"""Megabytes an hour that the memory of a process may grow."""

MOST_GROWTH, SMALL = 1.25, 2.0
"""A size may be so many times, and so many units, what it was early in the run."""

Points = Sequence[tuple[float, float]]
"""Seconds and a value."""


class Finding(StrEnum):
    FLAT = "flat"
    GROWS = "grows"
    UNCLEAR = "unclear"


class Slope(NamedTuple):
    """Per hour, with the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def finding(self) -> Finding:
        """Growth is found if the whole interval is above what is allowed."""
        if self.high <= MOST_SLOPE:
            return Finding.FLAT
        return Finding.GROWS if self.low > MOST_SLOPE else Finding.UNCLEAR


def slope(points: Points) -> Slope:
    """Least squares over the means of windows."""
    means = windows(points)
    hours = [at / 3600 for at, _ in means]
    values = [value for _, value in means]
    rate, base = statistics.linear_regression(hours, values)
    rest = [value - (base + rate * at) for at, value in zip(hours, values, strict=True)]
    middle = statistics.fmean(hours)
    spread = sum((at - middle) ** 2 for at in hours)
    error = (sum(each**2 for each in rest) / (len(rest) - 2) / spread) ** 0.5
    return Slope(rate, rate - INTERVAL * error, rate + INTERVAL * error)


def windows(points: Points) -> list[tuple[float, float]]:
    """The mean time and value of each window that has samples."""
    first, last = points[0][0], points[-1][0]
    length = (last - first) / WINDOWS or 1.0
    groups: dict[int, list[tuple[float, float]]] = {}
    for at, value in points:
        groups.setdefault(min(int((at - first) / length), WINDOWS - 1), []).append((at, value))
    return [
        (statistics.fmean(at for at, _ in group), statistics.fmean(value for _, value in group))
        for group in groups.values()
    ]


class Levels(NamedTuple):
    """The median of a series in its first and in its last third."""

    early: float
    late: float

    @property
    def finding(self) -> Finding:
        grows = self.late > max(self.early * MOST_GROWTH, self.early + SMALL)
        return Finding.GROWS if grows else Finding.FLAT


def levels(points: Points) -> Levels:
    values = [value for _, value in points]
    third = max(1, len(values) // 3)
    return Levels(statistics.median(values[:third]), statistics.median(values[-third:]))
