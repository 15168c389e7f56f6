"""Status routes: the queue's status, Prometheus metrics, and the liveness and readiness probes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Set
from typing import Literal, NamedTuple

from starlette.responses import PlainTextResponse, Response

from fairlane.api.context import AppContext, Here, RequestContext
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import seconds
from fairlane.index.index import Stats
from fairlane.model.catalog import Catalog
from fairlane.model.key import Role
from fairlane.model.service import Service
from fairlane.model.step import Lane
from fairlane.responses import QueueStatusResponse, ServiceStatusResponse

routes = Routes("status")


@routes.add("GET", "/queue/status", "read", example=examples.QUEUE_STATUS)
async def queue_status(call: Here) -> TypedResponse[QueueStatusResponse]:
    """List every service, region and provider, and the task types of the caller's tenant: waiting
    and running jobs, health, and the age of the oldest waiting job."""
    return serializers.answer(await _status(call))


@routes.add(
    "GET", "/queue/status/{region}", "read", example=examples.SERVICE_STATUS, problems=(404,)
)
async def region_status(call: Here, region: str) -> TypedResponse[ServiceStatusResponse]:
    """Get the status of one region, over all its services."""
    found = (await _status(call))["regions"].get(region)
    if found is None:
        raise ProblemDetails(404, "not_found", "no such region")
    return serializers.answer(found)


@routes.add_file("/metrics", "read", "text/plain", example=examples.METRICS)
async def metrics(call: Here) -> Response:
    """Return Prometheus metrics: the counters of this process and the state of the queue. A client
    key sees task types of other tenants as `other`."""
    engine, may_see = call.engine, None
    if call.identity.role is Role.CLIENT:
        may_see = {*engine.catalog.services, *engine.task_types(call.tenant)}.__contains__
    text = await call.app_context.instrumentation.text(
        leaving=call.app_context.draining,
        may_see=may_see,
        more=await call.app_context.celery.gauges(),
    )
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


class SlotUse:
    """Counts running jobs: the slots in use where there is a limit, else the running jobs in the
    ledger."""

    def __init__(self, stats: Stats, running: Counter[tuple[str, str | None]]) -> None:
        self._held = {pool.pool: pool.held for pool in stats.pools}
        self._running = running
        self._in_all = Counter[str]()
        for (service, _), n in running.items():
            self._in_all[service] += n

    def of_service(self, name: str) -> int:
        return self._held.get(f"svc:{name}", self._in_all[name])

    def of_region(self, name: str, region: str) -> int:
        return self._held.get(f"svc:{name}@{region}", self._running[name, region])

    def of_provider(self, name: str, services: Iterable[Service]) -> int:
        its = sum(self._in_all[each.name] for each in services if each.provider == name)
        return self._held.get(f"prov:{name}", its)


class RegionWaits(NamedTuple):
    """The waiting jobs of one service or region, and its retries: those at the front, and those
    that wait for their time. `since` is when the oldest began to wait."""

    waiting: int = 0
    retry: int = 0
    since: int | None = None

    def and_also(self, waiting: int, retry: int, since: int | None) -> RegionWaits:
        known = [at for at in (self.since, since) if at is not None]
        return RegionWaits(
            self.waiting + waiting, self.retry + retry, min(known) if known else None
        )


class QueueLines:
    """The waiting jobs and retries by service and by region, computed in one pass over the lanes. A
    waiting job counts in every region in which it may run. A retry that may run in several regions
    counts in none of them, but in `global_retry`."""

    def __init__(self, stats: Stats, catalog: Catalog) -> None:
        self.services: dict[str, RegionWaits] = {}
        self.regions: dict[str, RegionWaits] = {}
        self.global_retry = 0
        for name in {**stats.lanes, **stats.delayed}:
            lane = Lane.parse(name)
            front, since = stats.front.get(name, 0), stats.oldest.get(name)
            waiting, retry = stats.lanes.get(name, 0) - front, front + stats.delayed.get(name, 0)
            known = self.services.get(lane.service, NOTHING)
            self.services[lane.service] = known.and_also(waiting, retry, since)
            if not lane.is_bound:
                self.global_retry += retry
            service = catalog.services.get(lane.service)
            for region in {*(lane.regions or service.regions)} if service is not None else ():
                known = self.regions.get(region, NOTHING)
                own = retry if lane.is_bound else 0
                self.regions[region] = known.and_also(waiting, own, since)


NOTHING = RegionWaits()


async def _status(call: RequestContext) -> QueueStatusResponse:
    """Returns the status of what is configured, and of the task types of the tenant's jobs."""
    engine = call.engine
    stats = await engine.index_stats()
    running = await engine.running_by_service()
    return shown(stats, running, engine.catalog, engine.task_types(call.tenant), engine.clock.now())


def shown(
    stats: Stats,
    running: Counter[tuple[str, str | None]],
    catalog: Catalog,
    task_types: Set[str],
    now: int,
) -> QueueStatusResponse:
    use, lines = SlotUse(stats, running), QueueLines(stats, catalog)
    services = catalog.services.values()
    types = sorted(task_types - catalog.services.keys())
    every = [*services, *(catalog.service(name) for name in types)]
    names = sorted({region for each in services for region in each.regions})
    return {
        "regions": {name: _region(name, stats, use, catalog, lines, now) for name in names},
        "services": {each.name: _service(each, stats, use, lines, now) for each in every},
        "global_retry": lines.global_retry,
        "providers": {
            name: {"running": use.of_provider(name, services), "limit": provider.limit}
            for name, provider in catalog.providers.items()
        },
    }


def _service(
    service: Service, stats: Stats, use: SlotUse, lines: QueueLines, now: int
) -> ServiceStatusResponse:
    line = lines.services.get(service.name, NOTHING)
    return {
        "waiting": line.waiting,
        "retry": line.retry,
        "running": use.of_service(service.name),
        "limit": service.limit,
        "health": "paused" if service.paused else _health(service.name, stats),
        "oldest_age_seconds": _age(line, now),
    }


def _region(
    region: str, stats: Stats, use: SlotUse, catalog: Catalog, lines: QueueLines, now: int
) -> ServiceStatusResponse:
    """Returns the status of a region. A job that may run in several regions counts in each."""
    here = [service for service in catalog.services.values() if region in service.regions]
    line = lines.regions.get(region, NOTHING)
    failing = any(_health(f"{each.name}@{region}", stats) == "failing" for each in here)
    return {
        "waiting": line.waiting,
        "retry": line.retry,
        "running": sum(use.of_region(each.name, region) for each in here),
        "limit": sum(service.regions[region].limit for service in here),
        "health": "failing" if failing else "healthy",
        "oldest_age_seconds": _age(line, now),
    }


def _age(line: RegionWaits, now: int) -> float | None:
    return None if line.since is None else seconds(max(0, now - line.since))


def _health(name: str, stats: Stats) -> Literal["failing", "healthy"]:
    breaker = stats.breakers.get(name)
    return "failing" if breaker is not None and breaker.is_open else "healthy"


# --- this process --------------------------------------------------------------------------------
READY_TIMEOUT_SECONDS = 0.9
"""Less than the second within which every probe is answered."""


async def livez() -> Response:
    """Liveness probe: this process answers."""
    return PlainTextResponse("ok")


async def ready(app_context: AppContext) -> Response:
    """Readiness probe: the process is not draining, and the ledger answers and is writable. Then it
    accepts jobs. The text also says whether it hands them out."""
    engine = app_context.engine
    if app_context.draining:
        return _not_ready("shutting down")
    try:
        async with asyncio.timeout(READY_TIMEOUT_SECONDS):
            await engine.store_stats.demand_writable()
    except Exception:  # noqa: BLE001 - any error means not ready
        return _not_ready("storage unavailable")
    reason = engine.claims_paused
    return PlainTextResponse(f"ok, claims paused: {reason}" if reason else "ok")


def _not_ready(reason: str) -> Response:
    return PlainTextResponse(f"not ready: {reason}", 503, {"Retry-After": "1"})
