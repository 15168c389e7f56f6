"""A worker and its capabilities. A dispatcher, a pull worker, a Celery fleet and a caller are
workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fairlane.model.step import Lane, RetryTerms


class WorkerState(StrEnum):
    ACTIVE = "active"
    DRAINING = "draining"
    DEAD = "dead"


class Loaded(NamedTuple):
    """The model a worker has in memory, since when, and how many jobs in a row it served."""

    model: str = ""
    since: int = 0
    streak: int = 0

    def after(self, model: str, now: int) -> Loaded:
        """What is loaded once a job of this model has been started; one without a model leaves it
        as it is."""
        if not model:
            return self
        if model == self.model:
            return Loaded(model, self.since, self.streak + 1)
        return Loaded(model, now, 1)


def holder(worker: str, call: str) -> str:
    """Who a lease is confirmed for that was taken in this call of the worker."""
    return f"{worker}#{call}" if call else worker


def worker_of(holder: str) -> str:
    return holder.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Worker:
    """`services` none = whatever it has the capabilities for, but not `excluded`; `tiers` none =
    every tier; `key` is the credential it registered with; `tasks` are the terms it declares for
    its task types. `in_process`: it runs in the process that owns the ledger, and its work ends
    with that process."""

    id: str
    services: frozenset[str] | None = None
    region: str | None = None
    capabilities: frozenset[str] = frozenset()
    tiers: frozenset[str] | None = None
    capacity: int = 5
    heartbeat: int = 5_000_000
    version: str = ""
    key: str = ""
    in_process: bool = False
    state: WorkerState = WorkerState.ACTIVE
    tasks: Mapping[str, RetryTerms] = field(default_factory=dict, hash=False)
    excluded: frozenset[str] = frozenset()

    @property
    def lease(self) -> int:
        """Three missed heartbeats and the work is somebody else's."""
        return 3 * self.heartbeat

    def covers(self, lane: Lane) -> bool:
        return (
            (self.services is None or lane.service in self.services)
            and lane.service not in self.excluded
            and (not lane.regions or self.region in lane.regions)
            and self.capabilities.issuperset(lane.capabilities)
        )
