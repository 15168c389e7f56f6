"""The figures of the documentation, each with its minimum and its goal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from fairlane.model.catalog import Catalog
from fairlane.simulate.ablation import WithoutReservation
from fairlane.simulate.baselines import ORDERS, OURS
from fairlane.simulate.benchmark_workloads import WORLDS, B, C, D, question
from fairlane.simulate.fairlane_order import FairlaneOrder
from fairlane.simulate.jobs_ahead import JobsAhead
from fairlane.simulate.order import Order
from fairlane.simulate.places import SimulatedSlot
from fairlane.simulate.promotion_bound import violations
from fairlane.simulate.report import etas, within_two
from fairlane.simulate.run import Run
from fairlane.simulate.scenario import Scenario
from fairlane.simulate.two_pools import NEEDS, PATIENCE_SECONDS, crossed
from fairlane.units import SECOND

SHORT_RUN_JOBS = 300
"""Jobs per workload in a short run."""


SEEDS = 8
"""Seeds over which a figure is averaged if a single random draw would decide it."""


class SimulatedFigure(NamedTuple):
    """`least` and `goal` are upper bounds where lower is better. `each` holds the value of every
    seed."""

    name: str
    value: float
    least: float | None = None
    goal: float | None = None
    lower: bool = False
    each: tuple[float, ...] = ()

    def reaches(self, wanted: float | None) -> bool:
        if wanted is None:
            return True
        return self.value <= wanted if self.lower else self.value >= wanted


def figures(traces: Path | None, seed: int, few: int | None) -> Iterator[SimulatedFigure]:
    yield from _images(traces, seed, few)
    yield from _chat(traces, seed, few)
    yield from _clients(traces, seed, few)
    yield from _bound(traces, seed, few)
    yield from _two_pools(few or 6_000, seed)


def table(several: Iterator[SimulatedFigure]) -> Table:
    found = Table("figure", title="The order of service, measured")
    for column in ("value", "at the least", "goal", ""):
        found.add_column(column, justify="right")
    for each in several:
        verdict = "missed"
        if each.reaches(each.least):
            verdict = "goal" if each.goal is not None and each.reaches(each.goal) else "reached"
        if each.least is None:
            verdict = ""
        sign = "≤ " if each.lower else ""
        found.add_row(
            each.name,
            f"{each.value:.3g}{_spread(each)}",
            *("–" if each_limit is None else f"{sign}{each_limit:g}" for each_limit in each[2:4]),
            verdict,
        )
    return found


def _spread(figure: SimulatedFigure) -> str:
    if not figure.each:
        return ""
    return f" ({min(figure.each):.2g} to {max(figure.each):.2g})"


def _images(traces: Path | None, seed: int, few: int | None) -> Iterator[SimulatedFigure]:
    limits = {0.7: (0.85, 0.88, None, None, 65, 50), 0.9: (0.50, 0.55, 0.85, 0.88, 80, 60)}
    for load, (share, aim, used, more, wait, less) in limits.items():
        asked = question(B, load, traces, seed, few)
        report = asked.answer()
        yield SimulatedFigure(f"B {load} share within target", report.within or 0, share, aim)
        yield SimulatedFigure(f"B {load} utilisation", report.utilisation or 0, used, more)
        yield SimulatedFigure(
            f"B {load} first tier p95, s", report.tiers[0].p95, wait, less, lower=True
        )
    yield from _etas(question(B, 0.9, traces, seed, few), None, None)


def _chat(traces: Path | None, seed: int, few: int | None) -> Iterator[SimulatedFigure]:
    asked = question(C, 1.1, traces, seed, few)
    ours, strict = asked.answer(), asked.answer("strict")
    ratio = ours.tiers[0].p95 / max(0.001, strict.tiers[0].p95)
    yield SimulatedFigure("C 1.1 first tier p95 over strict's", ratio, 1.2, 1.0, lower=True)
    yield SimulatedFigure("C 1.1 share within target", ours.within or 0, 0.70, 0.75)
    yield from _etas(question(C, 0.9, traces, seed, few), 0.85, 0.95)


def _etas(asked: Scenario, least: float | None, goal: float | None) -> Iterator[SimulatedFigure]:
    """Accuracy of the ETAs, and of those that the jobs-ahead rule would have given."""
    run = asked.run()
    found = etas(run)
    if found is None:
        return
    name = f"{asked.name} ETA"
    yield SimulatedFigure(f"{name} p50 within 2×", found.within_two, least, goal)
    yield SimulatedFigure(f"{name} p50 within 2×, below 1 s too", found.strictly)
    yield SimulatedFigure(f"{name} p50 within 2×, from 5 s", within_two(run, 5 * SECOND))
    yield SimulatedFigure(f"{name} p90 held", found.covered, 0.85)
    other = asked.run_with(_by_jobs_ahead)
    yield SimulatedFigure(f"{name} by jobs ahead within 2×", within_two(other, SECOND))
    yield SimulatedFigure(f"{name} by jobs ahead within 2×, below 1 s too", within_two(other, 0))


def _by_jobs_ahead(catalog: Catalog, _: list[SimulatedSlot]) -> Order:
    return JobsAhead(catalog)


def _clients(traces: Path | None, seed: int, few: int | None) -> Iterator[SimulatedFigure]:
    asked = question(D, 0.9, traces, seed, few)
    yield SimulatedFigure("D 0.9 share within target", asked.answer().within or 0, 0.60, 0.66)
    others = {name: asked.answer(name).within or 0 for name in ORDERS if name != OURS}
    best = max(others, key=lambda name: others[name])
    yield SimulatedFigure(f"D 0.9 best other: {best}", others[best])


def _bound(traces: Path | None, seed: int, few: int | None) -> Iterator[SimulatedFigure]:
    found = 0
    for world in WORLDS.values():
        for load in (0.7, 0.9, 1.1):
            found += violations(question(world, load, traces, seed, few))
    yield SimulatedFigure("jobs over the bound, B C D at 0.7 0.9 1.1", found, 0, 0, lower=True)


def _two_pools(jobs: int, seed: int) -> Iterator[SimulatedFigure]:
    """Over several seeds: the work that is left when the arrivals end, and the jobs that need both
    pools in the worst hour, are random."""
    asked = [crossed(0.97, jobs, each) for each in range(seed, seed + SEEDS)]
    held = [each.run() for each in asked]
    free = [each.run_with(_without_hold) for each in asked]
    waits = tuple(_longest(run) for run in held)
    mean = sum(waits) / SEEDS
    yield SimulatedFigure(
        "two pools 0.97 longest wait, patiences", mean, 6, 4.5, lower=True, each=waits
    )
    waits = tuple(_longest(run) for run in free)
    yield SimulatedFigure("the same without the hold", sum(waits) / SEEDS, each=waits)
    used = [(_used(one), _used(other)) for one, other in zip(held, free, strict=True)]
    losses = tuple(1 - one / other for one, other in used)
    loss = 1 - sum(one for one, _ in used) / sum(other for _, other in used)
    yield SimulatedFigure(
        "two pools 0.97 utilisation lost", max(0.0, loss), 0.01, lower=True, each=losses
    )


def _without_hold(catalog: Catalog, _: list[SimulatedSlot]) -> Order:
    return FairlaneOrder(catalog, WithoutReservation)


def _longest(run: Run) -> float:
    waits = [each.begun - each.ready_at for each in run.served if each.service == "both"]
    return max(waits) / SECOND / PATIENCE_SECONDS


def _used(run: Run) -> int:
    """Slot time used, inside the span of the arrivals."""
    span = run.workload.span
    return sum(
        len(NEEDS[each.service]) * max(0, min(each.ended, span) - min(each.begun, span))
        for each in run.served
    )
