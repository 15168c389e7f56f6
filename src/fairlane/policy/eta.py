"""When a waiting job will start: work ahead over the capacity that better tiers leave, calibrated
on its own past errors."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

REMEMBERED = 400
FEWEST = 20
"""Ratios needed before the calibration is trusted more than the formula."""

BUSIEST = 950
"""The most of the capacity, in thousandths, that better tiers are believed to take for good."""


class Ahead(NamedTuple):
    """What stands before a job: work in microseconds, the slots that serve it, the part of them
    that better tiers use (thousandths), and loads to come on the way."""

    work: int
    slots: int
    better_load: int = 0
    load: int = 0


class Eta(NamedTuple):
    p50: int
    p90: int


def predict(ahead: Ahead) -> int:
    """Microseconds until the start, before calibration."""
    left = 1000 - min(ahead.better_load, BUSIEST)
    return ahead.work * 1000 // (max(1, ahead.slots) * left) + ahead.load


class Calibration:
    """The last ratios of actual to predicted wait, in thousandths."""

    def __init__(self) -> None:
        self._ratios: deque[int] = deque(maxlen=REMEMBERED)

    def learn(self, predicted: int, actual: int) -> None:
        if predicted > 0:
            self._ratios.append(min(actual * 1000 // predicted, 1_000_000))

    def eta(self, predicted: int) -> Eta:
        if len(self._ratios) < FEWEST:
            return Eta(predicted, predicted * 2)
        ranked = sorted(self._ratios)
        return Eta(
            predicted * ranked[len(ranked) // 2] // 1000,
            predicted * ranked[len(ranked) * 9 // 10] // 1000,
        )

    def error(self) -> int | None:
        """The median of actual over predicted, in thousandths."""
        return sorted(self._ratios)[len(self._ratios) // 2] if self._ratios else None


def rounded(position: int) -> int:
    """Exact to 1,000, then two digits: nobody cares, and it would flicker."""
    if position <= 1000:
        return position
    digits = int(10 ** (len(str(position)) - 2))
    return position // digits * digits
