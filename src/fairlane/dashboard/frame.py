"""The frames of the dashboard: the state of the system as one JSON object per audience. Deltas
between frames are in delta.py. docs/decisions/0029 describes its fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from fairlane.dashboard.audience import Audience, user_name
from fairlane.dashboard.history import RecentHistory, rounded
from fairlane.dashboard.reading import MAX_WORKERS, SystemReading, is_open, slot_pools
from fairlane.dashboard.why import FrontContext, blocked_sentence, why_next
from fairlane.engine.monitor import QueueFront
from fairlane.index.index import TakenSlot
from fairlane.model.service import Executor, Service
from fairlane.model.step import Lane
from fairlane.model.worker import Worker, WorkerState
from fairlane.units import SECOND

Json = Any
MILLISECOND = 1_000
KINDS = {Executor.HTTP: "called", Executor.CELERY: "celery", Executor.CALLER: "callers"}
VERSION = version("fairlane")


class Surroundings(NamedTuple):
    """What a frame shows beside the reading: the speed of a simulation (0 = none), the alerts of
    administrators and of all tenants, and the loads of Celery queues."""

    simulated_speed: float = 0
    alerts: tuple[Mapping[str, Json], ...] = ()
    celery: Mapping[str, Mapping[str, int]] | None = None
    public_alerts: tuple[Mapping[str, Json], ...] = ()


def build(
    reading: SystemReading,
    history: RecentHistory,
    audience: Audience,
    task_types: Iterable[str],
    around: Surroundings,
) -> dict[str, Json]:
    """`task_types` are those of the audience's tenant; administrators see all."""
    own = {*reading.catalog.services, *task_types}
    services = [each for each in reading.services if audience.is_admin or each.name in own]
    shown = {each.name: _service(each, reading, history, audience) for each in services}
    return {
        "at": reading.at // MILLISECOND,
        "version": VERSION,
        "simulated": {"speed": around.simulated_speed} if around.simulated_speed else None,
        "audience": "admin" if audience.is_admin else "tenant",
        "tiers": _tiers(reading, history, shown),
        "totals": _totals(reading, history, shown, audience),
        "alerts": list(around.alerts if audience.is_admin else around.public_alerts),
        "services": shown,
        "workers": _workers(reading, audience, own),
        "celery": around.celery if audience.is_admin else None,
    }


# --- totals --------------------------------------------------------------------------------------
def _tiers(reading: SystemReading, history: RecentHistory, shown: Iterable[str]) -> list[Json]:
    found = []
    for tier in reading.catalog.tiers.all:
        its = [history.total(service, tier.name) for service in shown]
        started, kept = sum(each.started for each in its), sum(each.in_target for each in its)
        share = round(kept / started, 3) if started and tier.target else None
        found.append(
            {
                "name": tier.name,
                "target_seconds": tier.target or None,
                "share_in_target": share,
                "started": started,
            }
        )
    return found


def _totals(
    reading: SystemReading, history: RecentHistory, shown: Mapping[str, Json], audience: Audience
) -> Json:
    limited = [each for each in shown.values() if each["limit"]]
    tiers = [tier for each in shown.values() for tier in each["tiers"].values()]
    delayed = sum(each.delayed for each in reading.stats.depths if each.service in shown)
    rate = sum(each["started_per_second"] for each in shown.values())
    return {
        "slots_used": sum(each["running"] for each in limited),
        "slots": sum(each["limit"] for each in limited),
        "waiting": sum(tier["waiting"] for tier in tiers),
        "delayed": delayed,
        "running": sum(each["running"] for each in shown.values()),
        "started_per_second": round(rate, 1),
        "submitted": history.arrived(shown),
        "dead": reading.slow.dead if audience.is_admin else None,
        "finished": sum(
            history.total(service, tier).finished
            for service in shown
            for tier in reading.catalog.tiers.names
        ),
    }


# --- services ------------------------------------------------------------------------------------
def _service(
    service: Service, reading: SystemReading, history: RecentHistory, audience: Audience
) -> Json:
    slots = reading.slots.get(service.name, ())
    running = sum(n for (name, _), n in reading.running.items() if name == service.name)
    front = reading.fronts.get(service.name, QueueFront([], {}, {}))
    usual = usual_seconds(reading, history, service.name)
    tiers = reading.catalog.tiers.names
    total = sum(history.started_per_second(service.name, tier) for tier in tiers)
    limit = sum(each.limit for each in service.regions.values()) or service.limit
    return {
        "kind": KINDS.get(service.executor, "workers"),
        "limit": limit or None,
        "running": len(slots) if slot_pools(service) else running,
        "paused": service.paused,
        "rate": f"{service.rate}/m" if service.rate else None,
        "provider": service.provider,
        "usual_seconds": usual,
        "started_per_second": round(total, 2),
        "health": _health(service, reading),
        "models": _models(service, reading) if audience.is_admin else [],
        "tiers": {
            tier: _tier(service.name, rank, tier, reading, history, front)
            for rank, tier in enumerate(tiers)
        },
        "p95": history.p95_line(service.name),
        "slots": _cells(service, slots, usual, reading, audience),
        "slot_counts": _slot_counts(slots, tiers),
        "next": next_jobs(service, front, reading, audience)[:5],
    }


def usual_seconds(reading: SystemReading, history: RecentHistory, service: str) -> float | None:
    """The average time of a successful attempt in the last 15 minutes."""
    tiers = [history.total(service, tier) for tier in reading.catalog.tiers.names]
    completed = sum(each.completed for each in tiers)
    if not completed:
        return None
    return rounded(sum(each.work_ms for each in tiers) / completed / 1000)


def _tier(
    service: str,
    rank: int,
    tier: str,
    reading: SystemReading,
    history: RecentHistory,
    front: QueueFront,
) -> Json:
    depth = next((d for d in reading.stats.depths if d.service == service and d.rank == rank), None)
    p50, p95 = history.waits(service, tier)
    oldest = depth.oldest if depth is not None and depth.waiting else None
    eta = front.new.get(tier)
    return {
        "waiting": depth.waiting if depth is not None else 0,
        "oldest_at": oldest // MILLISECOND if oldest is not None else None,
        "p50": rounded(p50),
        "p95": rounded(p95),
        "started_per_second": history.started_per_second(service, tier),
        "eta_p50": _seconds(eta and eta.p50),
        "eta_p90": _seconds(eta and eta.p90),
    }


def _health(service: Service, reading: SystemReading) -> Json:
    lanes = [(Lane.parse(lane), n) for lane, n in reading.stats.lanes.items()]
    own = [(lane, n) for lane, n in lanes if lane.service == service.name]
    held = {pool.pool: pool.held for pool in reading.stats.pools}
    found = {}
    for region in service.regions or ("",):
        name = f"{service.name}@{region}" if region else service.name
        limit = service.regions[region].limit if region else service.limit
        running = held.get(f"svc:{name}", reading.running[service.name, region or None])
        waiting = sum(
            n for lane, n in own if not region or not lane.regions or region in lane.regions
        )
        found[region] = {
            **_breaker(name, service.name, reading),
            "running": running,
            "limit": limit or None,
            "waiting": waiting,
        }
    return found


def _breaker(name: str, service: str, reading: SystemReading) -> Json:
    breaker = reading.stats.breakers.get(name) or reading.stats.breakers.get(service)
    if breaker is None:
        return {"state": "closed", "until": None}
    if breaker.probe or breaker.open_until <= reading.at:
        return {"state": "half_open", "until": None}
    return {"state": "open", "until": breaker.open_until // MILLISECOND}


def _models(service: Service, reading: SystemReading) -> list[Json]:
    """The models in the slots of a called service, or in the live workers of a pulled one."""
    report, lane = reading.slow.models.get(service.name), Lane(service.name)
    if report is None:
        return []
    loaded = [each.loaded.model for each in report.slots]
    if not loaded:
        own = [each for each in reading.slow.workers if each[0].covers(lane)]
        live = {worker.id for worker, heard in own if _is_live(worker, heard, reading)}
        loaded = [each.model for name, each in report.workers.items() if name in live]
    if not loaded and _has_worker(service, reading):
        loaded = [report.last.model]
    counts = Counter(model for model in loaded if model)
    return [{"model": model, "slots": n} for model, n in sorted(counts.items())]


# --- slots ---------------------------------------------------------------------------------------
def _cells(
    service: Service,
    held: Iterable[TakenSlot],
    usual: float | None,
    reading: SystemReading,
    audience: Audience,
) -> list[Json]:
    taken = {(each.slot.pool, each.slot.n): each for each in held}
    cells: list[Json] = []
    for pool in slot_pools(service):
        region = pool.partition("@")[2] or None
        limit = service.regions[region].limit if region else service.limit
        above = [n for name, n in taken if name == pool and n > limit]
        for n in [*range(1, limit + 1), *sorted(above)]:
            each = taken.get((pool, n))
            cells.append(_cell(n - 1, region, each, usual, reading, audience))
    return cells


def _cell(
    number: int,
    region: str | None,
    held: TakenSlot | None,
    usual: float | None,
    reading: SystemReading,
    audience: Audience,
) -> Json:
    cell: dict[str, Json] = {
        "slot": number,
        "state": "free",
        "job": None,
        "user": None,
        "tier": None,
        "model": None,
        "region": region,
        "since": None,
        "usual_seconds": None,
        "until": None,
    }
    if held is None:
        return cell
    if held.entry is None:
        until = held.slot.until
        return cell | {"state": "held", "until": until // MILLISECOND if until else None}
    entry = held.entry
    names = reading.catalog.tiers.names
    cell |= {
        "state": "running",
        "tier": names[entry.rank] if entry.rank < len(names) else None,
        "since": held.at // MILLISECOND,
        "usual_seconds": usual,
    }
    if audience.owns(entry.user):
        cell |= {"job": entry.id, "user": user_name(entry.user), "model": entry.model or None}
    return cell


def _slot_counts(held: Iterable[TakenSlot], tiers: tuple[str, ...]) -> dict[str, int]:
    counts = Counter(each.entry.rank for each in held if each.entry is not None)
    return {tier: counts[rank] for rank, tier in enumerate(tiers)}


# --- the next jobs -------------------------------------------------------------------------------
def next_jobs(
    service: Service, front: QueueFront, reading: SystemReading, audience: Audience
) -> list[Json]:
    """The next jobs, in the order of service, each with its reason."""
    if not front.jobs:
        return []
    context = _context(service, reading, audience)
    jobs = [job for job, _ in front.jobs]
    names = reading.catalog.tiers.names
    found = []
    can_start = _has_worker(service, reading)
    for place, (job, expected) in enumerate(front.jobs):
        why, eta = why_next(jobs, place, context), expected if can_start else None
        own = audience.owns(job.entry.user)
        found.append(
            {
                "job": job.entry.id if own else None,
                "user": user_name(job.entry.user) if own else None,
                "tier": names[job.entry.rank],
                "level": names[job.level],
                "badges": why.badges,
                "why": why.sentence,
                "eta_p50": _seconds(eta and eta.p50),
                "eta_p90": _seconds(eta and eta.p90),
            }
        )
    return found


def _context(service: Service, reading: SystemReading, audience: Audience) -> FrontContext:
    report = reading.slow.models.get(service.name)
    loads = {each.model: each.load for each in report.times if each.load} if report else {}
    breaker = reading.stats.breakers.get(service.name)
    open_until = (
        breaker.open_until if breaker is not None and is_open(reading.stats, service) else 0
    )
    blocked = blocked_sentence(
        service,
        open_until,
        _held_until(service, reading),
        reading.at,
        has_worker=_has_worker(service, reading),
        speed=reading.speed,
    )

    def name(user: str) -> str | None:
        return user_name(user) if audience.owns(user) else None

    breakers = reading.stats.breakers
    failing = {
        region: breakers[key].open_until
        for region in service.regions
        if (key := f"{service.name}@{region}") in breakers
    }
    tiers = reading.catalog.tiers
    return FrontContext(
        service, tiers, loads, reading.prices, blocked, reading.at, name, failing, reading.speed
    )


def _held_until(service: Service, reading: SystemReading) -> int:
    """When the first kept slot is free, if every slot is kept for a call that was cut off."""
    held = reading.slots.get(service.name, ())
    kept = [each.slot.until for each in held if each.entry is None and each.slot.until]
    return min(kept) if kept and len(kept) == len(held) >= (service.limit or 1) else 0


# --- workers -------------------------------------------------------------------------------------
def _workers(reading: SystemReading, audience: Audience, own: set[str]) -> Json:
    found = {}
    for worker, heard in reading.slow.workers:
        dead = not _is_live(worker, heard, reading)
        services = sorted(worker.services or ())
        models = [
            report.workers[worker.id].model
            for report in reading.slow.models.values()
            if worker.id in report.workers
        ]
        found[worker.id] = {
            "name": (worker.name if audience.is_admin else "") or worker.id,
            "state": str(WorkerState.DEAD if dead else worker.state),
            "running": reading.slow.running[worker.id],
            "capacity": worker.capacity,
            "region": worker.region,
            "services": [name for name in services if audience.is_admin or name in own],
            "models": sorted(set(models)) if audience.is_admin and not dead else [],
            "version": worker.version if audience.is_admin else "",
            "last_seen": heard // MILLISECOND,
        }
    return found


def _has_worker(service: Service, reading: SystemReading) -> bool:
    """Whether a live worker runs the service, also while it drains. Callers of slots need none."""
    workers = reading.slow.workers
    lane = Lane(service.name)
    if service.executor is Executor.CALLER or len(workers) >= MAX_WORKERS:
        return True
    return any(
        worker.covers(lane) and _is_live(worker, heard, reading) for worker, heard in workers
    )


def _is_live(worker: Worker, heard: int, reading: SystemReading) -> bool:
    return reading.at - heard <= worker.lease


# --- numbers -------------------------------------------------------------------------------------
def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else rounded(microseconds / SECOND)
