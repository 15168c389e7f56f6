"""What users would have been told by the jobs-ahead rule, for the comparison only."""

from __future__ import annotations

from collections import Counter

from fairlane.model.catalog import Catalog
from fairlane.policy.eta import Eta
from fairlane.simulate.order import Nothing, Step
from fairlane.simulate.ours import Ours
from fairlane.simulate.places import Place


class JobsAhead(Ours):
    """Served like ours. The wait is the number of jobs that wait for the model times what one of
    them takes on average."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._waiting: Counter[tuple[str, str]] = Counter()

    def put(self, step: Step, now: int) -> None:
        self._waiting[step.service, step.model] += 1
        super().put(step, now)

    def take(self, step: Step) -> None:
        self._waiting[step.service, step.model] -= 1
        super().take(step)

    def claim(self, place: Place, now: int) -> Step | Nothing:
        found = super().claim(place, now)
        if isinstance(found, Step):
            self._waiting[found.service, found.model] -= 1
        return found

    def eta(self, step: Step, now: int, slots: int) -> Eta | None:  # noqa: ARG002
        ahead = self._waiting[step.service, step.model] - 1
        told = ahead * self.costs.get(step.service, step.model)
        return Eta(told, told)
