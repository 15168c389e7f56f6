"""Every metric is documented, and named as Prometheus wants it."""

from __future__ import annotations

from fairlane.telemetry.metric_definitions import METRICS
from tests.repo.tables import DOCS, table


def test_every_metric_is_documented_as_it_is() -> None:
    documented = [
        (row["metric"], row["type"], row["labels"])
        for row in table(DOCS / "reference" / "metrics.md", "Metrics")
    ]
    declared = [(metric.name, metric.kind, ", ".join(metric.labels) or "–") for metric in METRICS]
    assert documented == declared


def test_metrics_are_named_as_prometheus_wants_them() -> None:
    for metric in METRICS:
        assert metric.name.startswith("fairlane_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert (metric.kind == "histogram") <= metric.name.endswith("_seconds"), metric.name
