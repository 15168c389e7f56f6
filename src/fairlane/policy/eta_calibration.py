"""ETA: when a waiting job will start. Predictions are calibrated by the errors of past ones."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import NamedTuple

MAX_RATIOS = 400
MIN_RATIOS = 20
"""Ratios needed before the calibration is trusted more than the formula."""

P90_HUNDREDTHS = 93
"""The quantile of ratios, in hundredths, that is used as p90. Jobs that still wait have no ratio
yet, and in a growing queue those are the long ones."""

RATIO_ONE = 1_000_000
MAX_RATIO = 1_000 * RATIO_ONE
"""The upper bound of one ratio, so that a single outlier does not distort the calibration."""


class Eta(NamedTuple):
    p50: int
    p90: int


class Calibration:
    """The last ratios of actual to predicted wait, in millionths: in order of arrival and
    sorted."""

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
        """Whether there are too few ratios to calibrate with."""
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
    """Exact to 1,000, then two digits: more digits would only flicker."""
    if position <= 1000:
        return position
    digits = int(10 ** (len(str(position)) - 2))
    return position // digits * digits
