"""The figures that the documentation names, each with the least it must be and what we aim at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from fairlane.model.catalog import Catalog
from fairlane.simulate.ablation import WithoutHold
from fairlane.simulate.bound import violations
from fairlane.simulate.crossed import NEEDS, PATIENCE, crossed
from fairlane.simulate.league import ORDERS, OURS
from fairlane.simulate.order import Order
from fairlane.simulate.ours import Ours
from fairlane.simulate.places import Place
from fairlane.simulate.run import Run
from fairlane.simulate.workload import SECOND
from fairlane.simulate.worlds import WORLDS, B, C, D, World, question

FEW = 300
"""Jobs of a world when it is only tried out."""


class Figure(NamedTuple):
    """`least` and `goal` are the most where lower is better."""

    name: str
    value: float
    least: float | None = None
    goal: float | None = None
    lower: bool = False

    def reaches(self, wanted: float | None) -> bool:
        if wanted is None:
            return True
        return self.value <= wanted if self.lower else self.value >= wanted


def figures(traces: Path | None, seed: int, short: bool = False) -> Iterator[Figure]:  # noqa: FBT001, FBT002
    few = FEW if short else None
    yield from _images(traces, seed, few)
    yield from _chat(traces, seed, few)
    yield from _clients(traces, seed, few)
    yield from _bound(traces, seed, few)
    yield from _two_pools(few or 6_000, seed)


def table(several: Iterator[Figure]) -> Table:
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
            f"{each.value:.3g}",
            *("–" if each_limit is None else f"{sign}{each_limit:g}" for each_limit in each[2:4]),
            verdict,
        )
    return found


def _world(world: World, few: int | None) -> World:
    return world if few is None else replace(world, kind=replace(world.kind, jobs=few))


def _images(traces: Path | None, seed: int, few: int | None) -> Iterator[Figure]:
    limits = {0.7: (0.85, 0.88, None, None, 65, 50), 0.9: (0.50, 0.55, 0.85, 0.88, 80, 60)}
    for load, (share, aim, used, more, wait, less) in limits.items():
        asked = question(_world(B, few), load, traces, seed)
        report = asked.answer()
        yield Figure(f"B {load} share within target", report.within or 0, share, aim)
        yield Figure(f"B {load} utilisation", report.utilisation or 0, used, more)
        yield Figure(f"B {load} first tier p95, s", report.tiers[0].p95, wait, less, lower=True)
        if report.eta is not None and load == 0.9:
            yield Figure("B 0.9 ETA p50 within 2×", report.eta.strictly)
            yield Figure("B 0.9 ETA p90 held", report.eta.covered)


def _chat(traces: Path | None, seed: int, few: int | None) -> Iterator[Figure]:
    asked = question(_world(C, few), 1.1, traces, seed)
    ours, strict = asked.answer(), asked.answer("strict")
    ratio = ours.tiers[0].p95 / max(0.001, strict.tiers[0].p95)
    yield Figure("C 1.1 first tier p95 over strict's", ratio, 1.2, 1.0, lower=True)
    yield Figure("C 1.1 share within target", ours.within or 0, 0.70, 0.75)
    eta = question(_world(C, few), 0.9, traces, seed).answer().eta
    if eta is not None:
        yield Figure("C 0.9 ETA p50 within 2×", eta.strictly, 0.85, 0.95)
        yield Figure("C 0.9 ETA p50 within 2× or 1 s", eta.within_two)
        yield Figure("C 0.9 ETA p90 held", eta.covered, 0.85)


def _clients(traces: Path | None, seed: int, few: int | None) -> Iterator[Figure]:
    asked = question(_world(D, few), 0.9, traces, seed)
    yield Figure("D 0.9 share within target", asked.answer().within or 0, 0.60, 0.66)
    others = {name: asked.answer(name).within or 0 for name in ORDERS if name != OURS}
    best = max(others, key=lambda name: others[name])
    yield Figure(f"D 0.9 best other: {best}", others[best])


def _bound(traces: Path | None, seed: int, few: int | None) -> Iterator[Figure]:
    found = 0
    for world in WORLDS.values():
        for load in (0.7, 0.9, 1.1):
            found += violations(question(_world(world, few), load, traces, seed))
    yield Figure("jobs over the bound, B C D at 0.7 0.9 1.1", found, 0, 0, lower=True)


def _two_pools(jobs: int, seed: int) -> Iterator[Figure]:
    asked = crossed(0.97, jobs, seed)
    held, free = asked.run(), asked.run_with(_without_hold)
    yield Figure("two pools 0.97 longest wait, patiences", _longest(held), 6, 4.5, lower=True)
    yield Figure("the same without the hold", _longest(free))
    loss = 1 - _used(held) / _used(free)
    yield Figure("two pools 0.97 utilisation lost", max(0.0, loss), 0.01, lower=True)


def _without_hold(catalog: Catalog, _: list[Place]) -> Order:
    return Ours(catalog, WithoutHold)


def _longest(run: Run) -> float:
    waits = [each.begun - each.ready_at for each in run.served if each.service == "both"]
    return max(waits) / SECOND / PATIENCE


def _used(run: Run) -> int:
    """Slots times time, inside the span of the arrivals."""
    span = run.workload.span
    return sum(
        len(NEEDS[each.service]) * max(0, min(each.ended, span) - min(each.begun, span))
        for each in run.served
    )
