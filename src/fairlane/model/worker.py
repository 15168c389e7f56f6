"""A worker and its capabilities. Dispatchers, pull workers, Celery workers and callers are
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
    """The model in a worker's memory, since when it is loaded, and how many jobs in a row it
    served."""

    model: str = ""
    since: int = 0
    streak: int = 0

    def after(self, model: str, now: int) -> Loaded:
        """The loaded model after a job of this model was started. A job without a model changes
        nothing."""
        if not model:
            return self
        if model == self.model:
            return Loaded(model, self.since, self.streak + 1)
        return Loaded(model, now, 1)


def holder(worker: str, call: str) -> str:
    """The holder under which a lease is confirmed that was claimed in this call of the worker."""
    return f"{worker}#{call}" if call else worker


def worker_of(holder: str) -> str:
    return holder.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Worker:
    """`services` None means every service for which the worker has the capabilities, except
    `excluded`. `tiers` None means every tier. `key` is the API key it registered with. `tasks` are
    the retry terms it declares for its task types. `in_process`: the worker runs in the process
    that owns the ledger, and its work ends with that process. A worker runs in one `region`, or (a
    dispatcher) reaches all `regions`; then the index chooses one for each job. `name` is for
    people: several workers may share it."""

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
    regions: tuple[str, ...] = ()
    name: str = ""

    @property
    def places(self) -> tuple[str | None, ...]:
        """The regions in which this worker can run a job; None stands for no region."""
        return self.regions or (self.region,)

    @property
    def lease(self) -> int:
        """The lease time: three heartbeats. After three missed ones the queue takes the work
        back."""
        return 3 * self.heartbeat

    def covers(self, lane: Lane) -> bool:
        return (
            (self.services is None or lane.service in self.services)
            and lane.service not in self.excluded
            and (not lane.regions or any(place in lane.regions for place in self.places))
            and self.capabilities.issuperset(lane.capabilities)
        )
