"""Assertions for users' tests: settings must keep their promised waits on a real workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fairlane.config.load import load as load_settings
from fairlane.model.catalog import Catalog
from fairlane.simulate.options import SimulationOptions, asked, scaled
from fairlane.simulate.report import WaitTimes


def assert_waits(  # noqa: PLR0913 - each has a default that fits
    trace: Path | str | None,
    config: Path | str | Catalog,
    *,
    tier: str,
    p50_below: float | None = None,
    p95_below: float | None = None,
    p99_below: float | None = None,
    longest_below: float | None = None,
    within_above: float | None = None,
    service: str = "",
    workers: int = 0,
    load: float = 0,
    traffic: float = 0,
    model_load: float = 0,
    seed: int = 1,
) -> WaitTimes:
    """Simulates the trace (None = a generated one) with these settings. Fails, with the figures,
    unless this tier (in this service) waits less than this many seconds. `within_above` is the
    share of jobs that must start within the tier's patience. Returns the figures."""
    catalog = config if isinstance(config, Catalog) else load_settings(Path(config)).catalog
    catalog.tiers.rank(tier)
    ask = SimulationOptions(
        trace=None if trace is None else Path(trace),
        workers=workers,
        load=load,
        traffic=traffic,
        model_load=str(model_load) if model_load else "",
        seed=seed,
    )
    report = scaled(ask, asked(ask, catalog)).answer()
    found = [
        each
        for each in (report.services if service else report.tiers)
        if each.tier == tier and each.service == service
    ]
    where = f"tier {tier}" + (f" in {service}" if service else "")
    if not found:
        raise AssertionError(f"no job of {where} was served, so there is nothing to compare")
    limits = {"p50": p50_below, "p95": p95_below, "p99": p99_below, "longest": longest_below}
    _compare(where, found[0], limits, within_above)
    return found[0]


def _compare(
    where: str, waits: WaitTimes, limits: Mapping[str, float | None], within_above: float | None
) -> None:
    wrong = [
        f"{name} {getattr(waits, name):.1f} s, not below {limit:g} s"
        for name, limit in limits.items()
        if limit is not None and getattr(waits, name) >= limit
    ]
    if within_above is not None and (waits.within or 0) <= within_above:
        share = "no target" if waits.within is None else f"{waits.within:.1%} within target"
        wrong.append(f"{share}, not above {within_above:.1%}")
    if wrong:
        raise AssertionError(f"{where}, {waits.jobs:,} jobs: {'; '.join(wrong)}")
