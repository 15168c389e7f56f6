"""Every metric is documented, and rules use only what there is."""

from __future__ import annotations

import re

from fairlane.telemetry.declared import METRICS
from tests.repo.checkout import ROOT
from tests.repo.tables import DOCS, table

RULES = ROOT / "examples" / "prometheus.yml"


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


def test_rules_use_metrics_that_are_there() -> None:
    named = set(re.findall(r"fairlane_\w+", RULES.read_text("utf-8")))
    known = {metric.name for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "histogram":
            known |= {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
    assert named <= known, named - known
