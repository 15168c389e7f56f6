"""One reading of the whole system: everything that a frame needs, gathered from the engine. Its
cost does not depend on how many jobs wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fairlane.engine import Engine
from fairlane.engine.monitor import QueueFront
from fairlane.errors import FairlaneError
from fairlane.index.index import ModelReport, Stats, TakenSlot
from fairlane.model.catalog import Catalog
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.worker import Worker, worker_of
from fairlane.units import SECOND

SHOWN_NEXT = 5
DETAILED_NEXT = 50
MAX_CELLS = 64
"""Services with more slots are shown with counts only."""

MAX_SERVICES = 200
MAX_WORKERS = 200
SLOW_MICROSECONDS = 5 * SECOND
"""Workers, models and dead letters are read this often."""


@dataclass(slots=True)
class SlowReading:
    """What changes slowly."""

    at: int = 0
    workers: list[tuple[Worker, int]] = field(default_factory=list)
    running: Counter[str] = field(default_factory=Counter)
    models: dict[str, ModelReport] = field(default_factory=dict)
    dead: int = 0


@dataclass(frozen=True, slots=True)
class SystemReading:
    """`services` are the configured ones and the task types with jobs. `slots` and `fronts` are by
    service. A simulation runs `speed` times as fast as it shows."""

    at: int
    catalog: Catalog
    services: list[Service]
    stats: Stats
    running: Counter[tuple[str, str | None]]
    slots: Mapping[str, Sequence[TakenSlot]]
    fronts: Mapping[str, QueueFront]
    prices: Mapping[str, int]
    slow: SlowReading
    load: tuple[int, int]
    speed: float = 1


async def read(engine: Engine, slow: SlowReading, detailed: frozenset[str]) -> SystemReading:
    """`detailed` are the services of which the next 50 jobs are wanted instead of 5."""
    monitor, catalog, now = engine.monitor, engine.catalog, engine.clock.now()
    stats, running, load = await asyncio.gather(monitor.stats(), monitor.running(), engine.load())
    services = shown_services(catalog, stats, running)
    pools = {each.name: slot_pools(each) for each in services}
    held = await monitor.held_slots([name for names in pools.values() for name in names])
    by_pool: dict[str, list[TakenSlot]] = {}
    for taken in held:
        by_pool.setdefault(taken.slot.pool, []).append(taken)
    in_all = Counter[str]()
    for (name, _), n in running.items():
        in_all[name] += n
    waiting = {depth.service for depth in stats.depths if depth.waiting}
    fronts = await asyncio.gather(
        *(
            monitor.front(
                each.name,
                DETAILED_NEXT if each.name in detailed else SHOWN_NEXT,
                in_all[each.name],
                open_for_calls=not is_open(stats, each),
            )
            for each in services
            if each.name in waiting
        )
    )
    if not 0 <= now - slow.at < SLOW_MICROSECONDS:
        await _read_slowly(engine, slow, services, now)
    names = [each.name for each in services if each.name in waiting]
    found = dict(zip(names, fronts, strict=True))
    for each in services:
        if each.name not in waiting:
            found[each.name] = monitor.empty_front(
                each.name, in_all[each.name], open_for_calls=not is_open(stats, each)
            )
    return SystemReading(
        at=now,
        catalog=catalog,
        services=services,
        stats=stats,
        running=running,
        slots={
            name: [slot for pool in its for slot in by_pool.get(pool, ())]
            for name, its in pools.items()
        },
        fronts=found,
        prices=await _prices(engine, found),
        slow=slow,
        load=load,
    )


def shown_services(
    catalog: Catalog, stats: Stats, running: Counter[tuple[str, str | None]]
) -> list[Service]:
    """The configured services, and the task types with waiting or running jobs."""
    names = {depth.service for depth in stats.depths} | {name for name, _ in running}
    types = sorted(name for name in names if name not in catalog.services and catalog.knows(name))
    configured = [*catalog.services.values()]
    return [*configured, *(catalog.service(name) for name in types)][:MAX_SERVICES]


def slot_pools(service: Service) -> list[str]:
    """The pools whose slots are the cells of a service: those of its regions, or its own. None if
    it has no limit, or more slots than are shown."""
    regions = [each for each in service.regions.values() if each.limit]
    limits = [each.limit for each in regions] or [service.limit]
    if not 0 < sum(limits) <= MAX_CELLS:
        return []
    if regions:
        return [f"svc:{service.name}@{each.name}" for each in regions]
    return [f"svc:{service.name}"]


def is_open(stats: Stats, service: Service) -> bool:
    """Whether the circuit breaker of the service is open, or those of all its regions."""
    if service.name in stats.breakers:
        return True
    regions = [f"{service.name}@{region}" for region in service.regions]
    return bool(regions) and all(region in stats.breakers for region in regions)


async def _read_slowly(
    engine: Engine, slow: SlowReading, services: Sequence[Service], now: int
) -> None:
    slow.workers = (await engine.workers.all())[:MAX_WORKERS]
    running = await engine.workers.running_jobs() if slow.workers else []
    slow.running = Counter(worker_of(job.worker or "") for job in running)
    slow.models = {each.name: await engine.model_report(each.name) for each in services}
    with suppress(FairlaneError):  # TookTooLong: keep the last number
        slow.dead = await engine.count(State.DEAD)
    slow.at = now


async def _prices(engine: Engine, fronts: Mapping[str, QueueFront]) -> dict[str, int]:
    """The credits that were paid for the skips among the next jobs."""
    paid = [
        each.entry.id for front in fronts.values() for each, _ in front.jobs if each.entry.band == 0
    ]
    if not paid:
        return {}
    found = await engine.jobs(paid)
    return await engine.skip_costs([*found.values()])
