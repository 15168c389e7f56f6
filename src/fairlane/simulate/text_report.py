"""The text report: tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from fairlane.simulate.report import Report, WaitTimes

COLUMNS = ("jobs", "p50", "p95", "p99", "longest", "target", "within", "gap", "Jain")


def show(reports: Sequence[tuple[str, Report]], console: Console) -> None:
    """One table per scenario, side by side if there are several."""
    for name, report in reports:
        console.print(_waits(name, report.tiers))
        if several := by_service(report):
            console.print(_waits(f"{name}, by service", several))
    console.print(_sums(reports))


def league(reports: Sequence[tuple[str, Report]], console: Console, title: str) -> None:
    """Every order of service. The one with the most jobs within their targets comes first."""
    names = [each.tier for each in reports[0][1].tiers]
    table = Table("order", "within target", "utilisation", "loads", title=title)
    for name in names:
        table.add_column(f"{name} p95", justify="right")
    table.add_column(f"{names[-1]} longest", justify="right")
    table.add_column("gap", justify="right")
    for name, report in sorted(reports, key=lambda each: -(each[1].within or 0)):
        p95 = {each.tier: seconds(each.p95) for each in report.tiers}
        table.add_row(
            name,
            share(report.within),
            share(report.utilisation),
            f"{report.loads:,}",
            *(p95.get(each, "–") for each in names),
            seconds(report.tiers[-1].longest),
            seconds(max(each.gap for each in report.tiers)),
        )
    console.print(table)


def _waits(name: str, waits: list[WaitTimes]) -> Table:
    table = Table("tier", title=name)
    if any(each.service for each in waits):
        table.add_column("service")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for each in waits:
        table.add_row(each.tier, *([each.service] if each.service else []), *cells(each))
    return table


def cells(waits: WaitTimes) -> list[str]:
    """The row of one tier, in the order of COLUMNS."""
    return [
        f"{waits.jobs:,}",
        seconds(waits.p50),
        seconds(waits.p95),
        seconds(waits.p99),
        seconds(waits.longest),
        seconds(waits.target) if waits.target else "–",
        share(waits.within),
        seconds(waits.gap),
        "–" if waits.jain is None else f"{waits.jain:.2f}",
    ]


def by_service(report: Report) -> list[WaitTimes]:
    """The waits by service, if there is more than one."""
    several = len({each.service for each in report.services}) > 1
    return report.services if several else []


def _sums(reports: Sequence[tuple[str, Report]]) -> Table:
    table = Table("", *(name for name, _ in reports))
    rows: dict[str, Callable[[Report], str]] = {
        "served of submitted": lambda each: f"{each.served:,} of {each.jobs:,}",
        "refused": _refusals,
        "gave up waiting": lambda each: f"{each.gave_up:,}",
        "within target": lambda each: share(each.within),
        "places": lambda each: f"{each.places:,}",
        "utilisation": lambda each: share(each.utilisation),
        "model loads": lambda each: f"{each.loads:,}, {share(each.load_share)} of the time",
        "ETA p90 held": lambda each: share(each.eta.covered if each.eta else None),
        "ETA p50 within 2×": lambda each: share(each.eta.within_two if each.eta else None),
        "the same below 1 s": lambda each: share(each.eta.strictly if each.eta else None),
    }
    for name, value in rows.items():
        table.add_row(name, *(value(report) for _, report in reports))
    return table


def _refusals(report: Report) -> str:
    found = [f"{number:,} {code}" for code, number in sorted(report.refused.items())]
    return ", ".join(found) or "none"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def seconds(value: float) -> str:
    """Short text: 0.4 s, 52 s, 12 min, 3.1 h."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 600:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"
