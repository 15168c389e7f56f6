"""Deployment files: their commands, variables, probes and metrics exist. `python3 dev.py deploy`
validates their formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import yaml

from fairlane import __version__
from fairlane.api.routes import GROUPS
from fairlane.cli import app
from fairlane.config.load import load
from fairlane.telemetry.metric_definitions import METRICS
from tests.repo.checkout import ROOT
from tests.repo.test_alerts import named

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
SETTINGS = ROOT / "deploy" / "fairlane.toml"
DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/fairlane.json").read_text("utf-8"))
OTHER_VARIABLES = {"DATABASE_URL", "REDIS_URL", "FAIRLANE_ADMIN_KEY"}


def resources() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text("utf-8"))


def containers() -> Iterator[dict[str, Any]]:
    for resource in resources():
        template = resource["spec"].get("template", {})
        yield from template.get("spec", {}).get("containers", [])


def commands() -> list[list[str]]:
    ours = [each for each in COMPOSE["services"].values() if each.get("image") == "fairlane"]
    return [each["command"] for each in ours] + [each["args"] for each in containers()]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_is_one_that_fairlane_has(command: list[str]) -> None:
    group = typer.main.get_command(app)
    name, *arguments = command
    found = group.get_command(group.make_context("fairlane", [name]), name)  # type: ignore[attr-defined]
    assert found is not None, name
    found.make_context(name, list(arguments))  # refuses options that it does not know


def test_every_variable_is_a_setting() -> None:
    names = set(COMPOSE["x-fairlane"]["environment"])
    names |= {each["name"] for container in containers() for each in container.get("env", ())}
    names |= set(re.findall(r"FAIRLANE_\w+", (ROOT / "Dockerfile").read_text("utf-8")))
    values = {"HOST": "::1", "DATA": "/x", "LOG_FORMAT": "json", "WAIT_FOR_STORES": "300"}
    for name in names - OTHER_VARIABLES - {"FAIRLANE_SKIP_DASHBOARD"}:
        section, _, setting = name.removeprefix("FAIRLANE_").partition("__")
        assert section == "SERVER", name
        load(SETTINGS, environment={name: values[setting]})


def test_the_settings_are_valid_and_in_the_chart_too() -> None:
    catalog = load(SETTINGS, environment={}).catalog
    assert set(catalog.services) == {"prompt_enhancer", "image_gen"}
    values = yaml.safe_load((ROOT / "deploy/helm/fairlane/values.yaml").read_text("utf-8"))
    assert values["settings"].startswith("[tiers]")
    for pool in values["dispatch"]:
        assert not set(filter(None, pool["tiers"].split(","))) - {"high", "medium", "low"}


def test_probes_ask_routes_that_exist() -> None:
    (api,) = (each for each in containers() if each["args"][0] == "serve")
    probes = {kind: api[kind]["httpGet"]["path"] for kind in api if kind.endswith("Probe")}
    assert probes == {
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
        "startupProbe": "/livez",
    }


def test_the_autoscaler_reads_a_route_that_exists() -> None:
    (trigger,) = (trigger for each in resources() for trigger in each["spec"].get("triggers", ()))
    path = trigger["metadata"]["url"].removeprefix("http://fairlane:8000")
    patterns = [route.path for group in GROUPS for route in group.declared]
    assert re.sub(r"[^/]+$", "{service}", path) in patterns


def test_the_dashboard_names_only_metrics_that_are_there() -> None:
    known = {metric.name for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "histogram":
            known |= {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            assert named(target["expr"]), target
            assert named(target["expr"]) <= known, target


def test_versions_are_the_packages() -> None:
    chart = yaml.safe_load((ROOT / "deploy/helm/fairlane/Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == __version__
    assert {each["image"] for each in containers()} == {f"fairlane:{__version__}"}


def test_containers_run_without_privileges() -> None:
    for container in containers():
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert "HEALTHCHECK" in text
