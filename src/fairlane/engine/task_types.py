"""Task type quota: the task types in use, counted per tenant. Configured services do not count."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from fairlane.errors import Refused
from fairlane.model.catalog import Catalog
from fairlane.model.job import Job
from fairlane.model.step import Step
from fairlane.units import SECOND

BEING_WRITTEN = 5 * SECOND
"""Time (µs) for which a submitted type counts although no store shows a job of it yet."""

MAX_TASK_TYPES = 1_000
"""Task types of one tenant with jobs that wait or run. The bound exists because every claim looks
at each type."""


class TaskTypes:
    """The task types known to one process. Types that other processes accept are learnt in a full
    pass over the ledger."""

    def __init__(self, most: int = MAX_TASK_TYPES) -> None:
        self.most = most
        self._seen_at: dict[str, dict[str, int]] = {}
        self._compared_at: dict[str, int] = {}

    def of(self, tenant: str) -> Set[str]:
        return self._seen_at.get(tenant, {}).keys()

    def see(self, used: Iterable[tuple[str, str]], now: int) -> None:
        """Record that there are jobs of these (tenant, task type) pairs."""
        for tenant, name in used:
            self._seen_at.setdefault(tenant, {})[name] = now

    def has_room_for(self, tenant: str, names: Collection[str]) -> bool:
        known = self.of(tenant)
        new = {name for name in names if name not in known}
        return not new or len(known) + len(new) <= self.most

    def may_compare(self, tenant: str, now: int) -> bool:
        """Whether the tenant's types may be compared with the stores again: at most once a
        second."""
        if now - self._compared_at.get(tenant, -SECOND) < SECOND:
            return False
        self._compared_at[tenant] = now
        return True

    def keep(self, tenant: str, live: Collection[str], now: int) -> None:
        """Keep only these types of the tenant, and those that are being written."""
        self._seen_at[tenant] = {
            name: at
            for name, at in self._seen_at.get(tenant, {}).items()
            if name in live or at > now - BEING_WRITTEN
        }

    def forget(self, since: int) -> None:
        """Remove types without a job since this time (µs), except those that are being written."""
        before = since - BEING_WRITTEN
        for tenant, seen_at in list(self._seen_at.items()):
            left = {name: at for name, at in seen_at.items() if at >= before}
            if left:
                self._seen_at[tenant] = left
            else:
                del self._seen_at[tenant]
        self._compared_at = {
            tenant: at for tenant, at in self._compared_at.items() if tenant in self._seen_at
        }

    def refusal(self) -> Refused:
        return Refused(
            "too_many_task_types",
            f"jobs of {self.most} task types wait or run already; use one of them, or try again "
            "when all jobs of one have ended",
            limit=self.most,
        )


def task_types(catalog: Catalog, steps: Iterable[Step]) -> list[str]:
    """The task types among the services of these steps: those that are not configured."""
    return [step.service for step in steps if step.service not in catalog.services]


def in_use(catalog: Catalog, jobs: Iterable[Job]) -> set[tuple[str, str]]:
    """The (tenant, task type) pairs that the unfinished steps of these jobs need."""
    if catalog.task_defaults is None:
        return set()
    return {
        (job.tenant, name)
        for job in jobs
        for name in task_types(catalog, job.plan[job.delivered :])
    }
