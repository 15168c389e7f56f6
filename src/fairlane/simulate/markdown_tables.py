"""The comparison and ablation tables of the documentation, in Markdown."""

from __future__ import annotations

from pathlib import Path

from fairlane.simulate.ablation import RULES, switched
from fairlane.simulate.baselines import ORDERS
from fairlane.simulate.benchmark_workloads import B, C, D, question
from fairlane.simulate.scenario import Scenario

LEAGUE = ((B, 0.7), (B, 0.9), (C, 1.1), (D, 0.9))
ABLATION = LEAGUE[1:]


def league(traces: Path | None, seed: int, few: int | None) -> list[str]:
    """For every order: the share of jobs within their target, and the first tier's p95. The best
    order of the first workload comes first."""

    def cell(asked: Scenario, order: str) -> str:
        report = asked.answer(order)
        return f"{_share(report.within)} ({_wait(report.tiers[0].p95)})"

    several = [question(world, load, traces, seed, few) for world, load in LEAGUE]
    rows = [[order, *(cell(asked, order) for asked in several)] for order in ORDERS]
    return _table("order", several, sorted(rows, key=lambda row: row[1], reverse=True))


def ablation(traces: Path | None, seed: int, few: int | None) -> list[str]:
    """For every rule: share within target · utilisation · first tier's p95 · longest gap of a
    user."""

    def cell(asked: Scenario, rule: str) -> str:
        report = switched(asked, rule).answer()
        shares = f"{_share(report.within)} · {_share(report.utilisation)}"
        gap = max(each.gap for each in report.tiers)
        return f"{shares} · {_wait(report.tiers[0].p95)} · {_wait(gap)}"

    several = [question(world, load, traces, seed, few) for world, load in ABLATION]
    rows = [[rule, *(cell(asked, rule) for asked in several)] for rule in RULES]
    return _table("rules", several, rows)


def _table(title: str, several: list[Scenario], rows: list[list[str]]) -> list[str]:
    head = [title, *(asked.name for asked in several)]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _share(value: float | None) -> str:
    """.504"""
    return f"{value or 0:.3f}".removeprefix("0")


def _wait(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s"
