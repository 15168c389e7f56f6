"""Prometheus metrics: counters, gauges and histograms, and their text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

from fairlane.telemetry.metric_definitions import Bounds, Labels, Metric

MAX_SERIES = 1_000
"""The most series of one metric. Further ones are counted as `other`, so callers cannot make a
process use unbounded memory."""


class Counted:
    """The numbers of one histogram series."""

    __slots__ = ("bounds", "buckets", "count", "total")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.buckets = bounds, [0] * (len(bounds) + 1)
        self.count, self.total = 0, 0.0

    def add(self, value: float) -> None:
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.total += value

    def merge(self, other: Counted) -> None:
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.count += other.count
        self.total += other.total


class Registry:
    """Holds the declared metrics. An undeclared one cannot be counted."""

    def __init__(self, declared: Iterable[Metric]) -> None:
        self._declared = {metric.name: metric for metric in declared}
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in self._declared}
        self._counted: dict[str, dict[Labels, Counted]] = {name: {} for name in self._declared}
        for name, metric in self._declared.items():
            if metric.kind == "counter" and not metric.labels:
                self._values[name][()] = 0
            if metric.kind == "histogram" and not metric.labels:
                self._counted[name][()] = Counted(metric.bounds)

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        values = self._values[name]
        if labels not in values:
            labels = _bounded(values, labels)
            values.setdefault(labels, 0)
        values[labels] += by

    def observe(self, name: str, value: float, *labels: str) -> None:
        known = self._counted[name]
        counted = known.get(labels)
        if counted is None:
            counted = Counted(self._declared[name].bounds)
            counted = known.setdefault(_bounded(known, labels), counted)
        counted.add(value)

    def text(
        self,
        gauges: Mapping[str, Mapping[Labels, float]],
        may_see: Callable[[str], bool] | None = None,
    ) -> str:
        """All metrics in the Prometheus text format, with gauges as of now. Services that the
        reader may not see are counted together."""
        lines = []
        for name, metric in self._declared.items():
            lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
            if metric.kind == "histogram":
                for labels, counted in _histograms(metric, self._counted[name], may_see).items():
                    lines += _histogram(metric, labels, counted)
                continue
            values = gauges.get(name, {}) if metric.kind == "gauge" else self._values[name]
            values = _counters(metric, values, may_see)
            lines += [
                f"{name}{_shown(metric.labels, labels)} {value:g}"
                for labels, value in values.items()
            ]
        return "\n".join(lines) + "\n"


def _bounded(known: Mapping[Labels, object], labels: Labels) -> Labels:
    return labels if len(known) < MAX_SERIES else ("other",) * len(labels)


def _seen(metric: Metric, labels: Labels, may_see: Callable[[str], bool]) -> Labels:
    return tuple(
        value if name != "service" or may_see(value) else "other"
        for name, value in zip(metric.labels, labels, strict=True)
    )


def _counters(
    metric: Metric, values: Mapping[Labels, float], may_see: Callable[[str], bool] | None
) -> Mapping[Labels, float]:
    if may_see is None or "service" not in metric.labels:
        return values
    found: dict[Labels, float] = {}
    for labels, value in values.items():
        shown = _seen(metric, labels, may_see)
        found[shown] = found.get(shown, 0) + value
    return found


def _histograms(
    metric: Metric, counted: Mapping[Labels, Counted], may_see: Callable[[str], bool] | None
) -> Mapping[Labels, Counted]:
    if may_see is None or "service" not in metric.labels:
        return counted
    found: dict[Labels, Counted] = {}
    for labels, each in counted.items():
        shown = _seen(metric, labels, may_see)
        found.setdefault(shown, Counted(metric.bounds)).merge(each)
    return found


def _histogram(metric: Metric, labels: Labels, counted: Counted) -> list[str]:
    lines, below = [], 0
    names = (*metric.labels, "le")
    for bound, count in zip(metric.bounds, counted.buckets, strict=False):
        below += count
        lines.append(f"{metric.name}_bucket{_shown(names, (*labels, f'{bound:g}'))} {below}")
    lines.append(f"{metric.name}_bucket{_shown(names, (*labels, '+Inf'))} {counted.count}")
    shown = _shown(metric.labels, labels)
    lines.append(f"{metric.name}_sum{shown} {counted.total:g}")
    lines.append(f"{metric.name}_count{shown} {counted.count}")
    return lines


def _shown(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
