"""Settings validation: every service that live jobs still need must be configured."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.model.catalog import Catalog
from fairlane.model.job import Job
from fairlane.model.step import Plan


class ServicesInUse:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._checked: set[tuple[Plan, int]] = set()

    def check(self, jobs: Iterable[Job]) -> None:
        """Raises UnknownName if an unfinished step needs a service that is not configured."""
        for job in jobs:
            if (job.plan, job.step) not in self._checked:
                self._checked.add((job.plan, job.step))
                for step in job.plan[job.delivered :]:
                    self._catalog.service(step.service)
