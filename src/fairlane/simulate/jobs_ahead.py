"""The jobs-ahead rule for ETAs, for comparison only."""

from __future__ import annotations

from collections import Counter

from fairlane.model.catalog import Catalog
from fairlane.policy.eta_calibration import Eta
from fairlane.simulate.fairlane_order import FairlaneOrder
from fairlane.simulate.order import Nothing, SimulatedStep
from fairlane.simulate.places import SimulatedSlot


class JobsAhead(FairlaneOrder):
    """Served like Fairlane. The ETA is the number of jobs that wait for the model times their mean
    duration."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._waiting: Counter[tuple[str, str]] = Counter()

    def put(self, step: SimulatedStep, now: int) -> None:
        self._waiting[step.service, step.model] += 1
        super().put(step, now)

    def take(self, step: SimulatedStep) -> None:
        self._waiting[step.service, step.model] -= 1
        super().take(step)

    def claim(self, place: SimulatedSlot, now: int) -> SimulatedStep | Nothing:
        found = super().claim(place, now)
        if isinstance(found, SimulatedStep):
            self._waiting[found.service, found.model] -= 1
        return found

    def eta(self, step: SimulatedStep, now: int, slots: int) -> Eta | None:  # noqa: ARG002
        ahead = self._waiting[step.service, step.model] - 1
        told = ahead * self.costs.get(step.service, step.model)
        return Eta(told, told)
