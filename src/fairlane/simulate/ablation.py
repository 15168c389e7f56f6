"""Ablation: the same workload with one rule of the order of service switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fairlane.index.memory import MemoryIndex
from fairlane.index.memory.claim import Reservation
from fairlane.model.catalog import Catalog
from fairlane.model.service import Affinity, Fairness, Service, Shares
from fairlane.model.tier import Tiers
from fairlane.simulate.fairlane_order import FairlaneOrder
from fairlane.simulate.order import Order
from fairlane.simulate.places import SimulatedSlot
from fairlane.simulate.scenario import Scenario

NO_CAP = Shares(1000, 1000, 1000)


class WithoutReservation(MemoryIndex):
    """The index without reservations: no job keeps the last slot of a pool free for itself."""

    def current_hold(self, now: int) -> Reservation | None:  # noqa: ARG002
        self.hold = None
        return None


class WithoutModelChoice(MemoryIndex):
    """The index without model choice: the first job decides which model is loaded."""

    counts_users = False


def switched(asked: Scenario, rule: str) -> Scenario:
    """The same scenario with this rule switched off, measured against the same targets."""
    changed = replace(asked, targets=asked.aims)
    if rule == IN_TURN:
        return replace(changed, ours=_in_turn)
    return replace(changed, catalog=RULES[rule](asked.catalog))


def _in_turn(catalog: Catalog, _: list[SimulatedSlot]) -> Order:
    return FairlaneOrder(catalog, WithoutModelChoice)


def _nothing(catalog: Catalog) -> Catalog:
    return catalog


def _without_affinity(catalog: Catalog) -> Catalog:
    return _services(catalog, lambda each: replace(each, affinity=Affinity.NONE))


def _in_batches(catalog: Catalog) -> Catalog:
    return _services(catalog, lambda each: replace(each, affinity=Affinity.BATCH))


def _without_fairness(catalog: Catalog) -> Catalog:
    return _services(catalog, lambda each: replace(each, fairness=Fairness.NONE))


def _without_shares(catalog: Catalog) -> Catalog:
    return _services(catalog, lambda each: replace(each, shares=NO_CAP))


def _without_ageing(catalog: Catalog) -> Catalog:
    tiers = [replace(tier, promote={}) for tier in catalog.tiers.all]
    return _like(catalog, tiers=Tiers(tiers, catalog.tiers.default))


def _straight_up(catalog: Catalog) -> Catalog:
    """Only the last threshold: promotes directly to the best tier that a job can reach."""
    tiers = [
        replace(tier, promote=dict([max(tier.promote.items(), key=lambda each: each[1])]))
        if tier.promote
        else tier
        for tier in catalog.tiers.all
    ]
    return _like(catalog, tiers=Tiers(tiers, catalog.tiers.default))


IN_TURN = "models loaded in turn"
RULES: dict[str, Callable[[Catalog], Catalog]] = {
    "all rules": _nothing,
    IN_TURN: _nothing,
    "no model affinity": _without_affinity,
    "affinity in threes": _in_batches,
    "no fair share": _without_fairness,
    "no cap on aged work": _without_shares,
    "no ageing": _without_ageing,
    "one threshold a tier": _straight_up,
}
"""The rules that can be switched off, and how."""


def bounded(catalog: Catalog) -> Catalog:
    """The order with a provable bound: every job ages, aged jobs go first, no model is loaded."""
    return _without_affinity(_without_shares(_without_fairness(catalog)))


def _services(catalog: Catalog, change: Callable[[Service], Service]) -> Catalog:
    defaults = catalog.task_defaults
    return _like(
        catalog,
        services=[change(each) for each in catalog.services.values()],
        task_defaults=change(defaults) if defaults is not None else None,
    )


def _like(
    catalog: Catalog,
    *,
    tiers: Tiers | None = None,
    services: list[Service] | None = None,
    task_defaults: Service | None = None,
) -> Catalog:
    return Catalog(
        tiers or catalog.tiers,
        catalog.services.values() if services is None else services,
        catalog.providers.values(),
        catalog.pipelines,
        catalog.limits,
        task_defaults or catalog.task_defaults,
        catalog.credits,
    )
