"""Places: the simulated workers. A limited service or region has as many places as its limit.
Unlimited services share the given workers; without workers there is always a free place."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.errors import InvalidInput
from fairlane.model.catalog import Catalog
from fairlane.model.worker import Loaded, Worker
from fairlane.simulate.workload import Workload

MAX_SLOTS = 100_000


class SimulatedSlot:
    """Runs one job at a time and keeps the model of the last one. An unlimited place runs any
    number and loads nothing."""

    __slots__ = ("boundless", "busy", "id", "loaded", "looks_at", "number", "worker")

    def __init__(self, number: int, worker: Worker, *, boundless: bool = False) -> None:
        self.number, self.worker, self.boundless = number, worker, boundless
        self.id = worker.id
        self.loaded = Loaded()
        self.busy = False
        self.looks_at: int | None = None


def places(catalog: Catalog, names: Iterable[str], workers: int = 0) -> list[SimulatedSlot]:
    """The places that serve these services."""
    found: list[SimulatedSlot] = []
    unlimited = []
    for name in sorted(names):
        service = catalog.service(name)
        regions = {each.name: each.limit or service.limit for each in service.regions.values()}
        if all(regions.values()) and regions:
            for region, limit in regions.items():
                found += _several(found, name, limit, region, service.capabilities)
        elif service.limit:
            found += _several(found, name, service.limit, None, service.capabilities)
        else:
            unlimited.append(name)
    if unlimited:
        needed = frozenset(
            each for name in unlimited for each in catalog.service(name).capabilities
        )
        covered = frozenset(unlimited)
        for n in range(workers):
            worker = Worker(f"worker-{n + 1}", covered, capabilities=needed)
            found.append(SimulatedSlot(len(found), worker))
        if not workers:
            found.append(
                SimulatedSlot(
                    len(found), Worker("any", covered, capabilities=needed), boundless=True
                )
            )
    if len(found) > MAX_SLOTS:
        raise InvalidInput(
            f"the limits make {len(found):,} places, and at most {MAX_SLOTS:,} can be simulated"
        )
    return found


def _several(
    before: list[SimulatedSlot], service: str, limit: int, region: str | None, needs: frozenset[str]
) -> list[SimulatedSlot]:
    where = f"{service}@{region}" if region else service
    return [
        SimulatedSlot(
            len(before) + n,
            Worker(f"{where}-{n + 1}", frozenset([service]), region, needs),
        )
        for n in range(limit)
    ]


def load_of(catalog: Catalog, given: Workload, workers: int) -> float:
    """The utilisation of the busiest places by this workload, without model loads."""
    work: dict[str, int] = {}
    for each in given.arrivals:
        for service, seconds in zip(catalog.steps(each.name), each.seconds, strict=True):
            work[service.name] = work.get(service.name, 0) + seconds
    serving = places(catalog, work, workers)
    groups: dict[frozenset[str], int] = {}
    for place in serving:
        covered = place.worker.services or frozenset()
        groups[covered] = groups.get(covered, 0) + (0 if place.boundless else 1)
    loads = [
        sum(work[name] for name in covered) / (number * max(1, given.span))
        for covered, number in groups.items()
        if number
    ]
    if not loads:
        raise InvalidInput("no service has a limit; set one, or name a number of --workers")
    return max(loads)
