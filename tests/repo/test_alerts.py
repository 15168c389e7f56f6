"""Rules for Prometheus: they name what there is, each alert is tested, and the tests hold."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from fairlane.telemetry.metric_definitions import METRICS
from tests.repo.checkout import ROOT

RULES = ROOT / "examples" / "prometheus-rules.yml"
CASES = RULES.with_suffix(".test.yml")

OTHERS = {"up", "node_filesystem_avail_bytes", "node_filesystem_size_bytes"}
"""What Prometheus itself and its node exporter tell."""

WORDS = {"and", "or", "by"}
NOT_A_METRIC = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)')
EXPRESSION = re.compile(r"^ +expr: (?:>-\n)?(.*\n(?: {10,}.*\n)*)", re.MULTILINE)


def named(expression: str) -> set[str]:
    """The metrics of an expression: names that are neither called nor inside braces."""
    return set(re.findall(r"\b[a-z]\w*\b(?! *\()", NOT_A_METRIC.sub(" ", expression))) - WORDS


def test_rules_name_only_metrics_that_are_there() -> None:
    known = {metric.name for metric in METRICS} | OTHERS
    for metric in METRICS:
        if metric.kind == "histogram":
            known |= {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
    expressions = EXPRESSION.findall(RULES.read_text("utf-8"))
    assert len(expressions) == RULES.read_text("utf-8").count("expr:")
    for expression in expressions:
        assert named(expression), expression
        assert named(expression) <= known, expression


def test_every_alert_is_seen_to_be_quiet_and_to_fire() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text("utf-8"))
    cases = re.findall(r"alertname: (\w+)[,\n]\s*exp_alerts:\s*(\[\])?", CASES.read_text("utf-8"))
    quiet = {name for name, none in cases if none}
    firing = {name for name, none in cases if not none}
    assert quiet == set(alerts)
    assert firing == set(alerts)


def test_the_rules_do_what_their_tests_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for command in (["check", "rules", RULES.name], ["test", "rules", CASES.name]):
        ran = subprocess.run(
            [promtool, *command], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
