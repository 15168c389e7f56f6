"""ETA: when a waiting job will start, predicted and corrected by the errors of past predictions."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import NamedTuple

MAX_RATIOS = 400
MIN_RATIOS = 20
"""Ratios needed before the calibration is trusted more than the formula."""

P90_HUNDREDTHS = 93
"""The part of the ratios, in hundredths, that the p90 covers: whoever still waits has not told
theirs yet, and in a growing line those are the long ones."""

RATIO_ONE = 1_000_000
MAX_RATIO = 1_000 * RATIO_ONE
"""Of a ratio. Nobody is that wrong twice."""


class Eta(NamedTuple):
    p50: int
    p90: int


class Calibration:
    """The last ratios of actual to predicted wait, in millionths, in the order they came and by
    size."""

    def __init__(self) -> None:
        self._ratios: deque[int] = deque()
        self._ranked: list[int] = []

    def learn(self, predicted: int, actual: int) -> None:
        if predicted <= 0:
            return
        ratio = min(max(0, actual) * RATIO_ONE // predicted, MAX_RATIO)
        self._ratios.append(ratio)
        insort(self._ranked, ratio)
        if len(self._ratios) > MAX_RATIOS:
            del self._ranked[bisect_left(self._ranked, self._ratios.popleft())]

    def is_new(self) -> bool:
        """Whether it has seen too little to correct anything."""
        return len(self._ranked) < MIN_RATIOS

    def eta(self, predicted: int) -> Eta:
        ranked = self._ranked
        if self.is_new():
            return Eta(predicted, predicted * 2)
        return Eta(
            predicted * ranked[len(ranked) // 2] // RATIO_ONE,
            predicted * ranked[len(ranked) * P90_HUNDREDTHS // 100] // RATIO_ONE,
        )


def rounded(position: int) -> int:
    """Exact to 1,000, then two digits: nobody cares, and it would flicker."""
    if position <= 1000:
        return position
    digits = int(10 ** (len(str(position)) - 2))
    return position // digits * digits
