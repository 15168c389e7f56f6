"""A scenario: settings, a workload, and the number of workers."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.model.catalog import Catalog
from fairlane.simulate.baselines import ORDERS, OURS, Maker
from fairlane.simulate.places import load_of, places
from fairlane.simulate.report import Report, measure
from fairlane.simulate.run import Run, Simulation, Telling
from fairlane.simulate.workload import Workload, faster
from fairlane.units import SECOND


@dataclass(frozen=True, slots=True)
class Scenario:
    """`workers` serve the services without a limit. `targets` are seconds for each tier, by default
    its patience; changed settings are measured against the original targets. `ours` is the default
    order, perhaps with a rule switched off."""

    name: str
    catalog: Catalog
    workload: Workload
    workers: int = 0
    targets: tuple[float, ...] = ()
    ours: Maker = ORDERS[OURS]

    @property
    def services(self) -> set[str]:
        names = {each.name for each in self.workload.arrivals}
        return {service.name for name in names for service in self.catalog.steps(name)}

    def at_load(self, load: float) -> Workload:
        """The workload, scaled in time to this utilisation."""
        return faster(self.workload, load / load_of(self.catalog, self.workload, self.workers))

    def run(self, order: str = OURS, told: Telling | None = None) -> Run:
        return self.run_with(self.ours if order == OURS else ORDERS[order], told)

    def run_with(self, maker: Maker, told: Telling | None = None) -> Run:
        serving = places(self.catalog, self.services, self.workers)
        order = maker(self.catalog, serving)
        return Simulation(self.catalog, self.workload, order, serving).to_the_end(told)

    def answer(self, order: str = OURS, told: Telling | None = None) -> Report:
        return measure(self.run(order, told), self.catalog.tiers.names, self.aims)

    @property
    def aims(self) -> tuple[float, ...]:
        return self.targets or tuple(each / SECOND for each in self.catalog.tiers.patience)
