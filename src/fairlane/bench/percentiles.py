"""Percentiles of what the benchmarks measure, by rank."""

from __future__ import annotations

from collections.abc import Iterable


def percentile(values: Iterable[float], percent: int) -> float:
    """The value that this many percent of the values do not reach."""
    ranked = sorted(values)
    return ranked[len(ranked) * percent // 100]


def p50_and_p99(values: Iterable[float]) -> tuple[float, float]:
    ranked = sorted(values)
    return percentile(ranked, 50), percentile(ranked, 99)
