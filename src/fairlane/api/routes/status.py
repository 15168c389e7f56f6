"""How the whole queue is, and whether this process lives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from starlette.responses import PlainTextResponse, Response

from fairlane.api import answers, show
from fairlane.api.door import Door, Here
from fairlane.api.problems import Problem
from fairlane.api.routing import Routes
from fairlane.api.times import seconds
from fairlane.engine.core import Core
from fairlane.index.index import Stats
from fairlane.model.catalog import Catalog
from fairlane.model.service import Service
from fairlane.model.step import Lane

routes = Routes("status")


@routes.add("GET", "/queue/status", "read", gives=answers.QueueStatus)
async def queue_status(call: Here) -> Response:
    """Every service and region: how many wait and run, whether it answers, how long the oldest
    waits."""
    return show.answer(await _status(call.engine.core))


@routes.add("GET", "/queue/status/{region}", "read", gives=answers.Line, problems=(404,))
async def region_status(call: Here, region: str) -> Response:
    """One region, over all services that run there."""
    found = (await _status(call.engine.core))["regions"].get(region)
    if found is None:
        raise Problem(404, "not_found", "no such region")
    return show.answer(found)


@routes.add("GET", "/metrics", "read", also={200: {"content": {"text/plain": {}}}})
async def metrics(call: Here) -> Response:
    """For Prometheus: what this process has counted, and how the queue is now."""
    text = await call.door.meter.text(leaving=call.door.draining)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


class Use:
    """How much runs. Where there is a limit, what takes a slot counts; elsewhere, what the ledger
    says."""

    def __init__(self, stats: Stats, running: Counter[tuple[str, str | None]]) -> None:
        self._held = {pool.pool: pool.held for pool in stats.pools}
        self._running = running

    def of_service(self, name: str) -> int:
        return self._held.get(f"svc:{name}", self._sum(name))

    def of_region(self, name: str, region: str) -> int:
        return self._held.get(f"svc:{name}@{region}", self._running[name, region])

    def of_provider(self, name: str, services: Iterable[Service]) -> int:
        its = sum(self._sum(each.name) for each in services if each.provider == name)
        return self._held.get(f"prov:{name}", its)

    def _sum(self, name: str) -> int:
        return sum(n for (service, _), n in self._running.items() if service == name)


async def _status(core: Core) -> dict[str, Any]:
    stats, catalog, now = await core.index.stats(), core.catalog, core.now()
    use = Use(stats, await core.ledger.running_in())
    services = catalog.services.values()
    lines = {name: _service(name, stats, use, catalog, now) for name in catalog.services}
    names = sorted({region for each in services for region in each.regions})
    return {
        "regions": {name: _region(name, stats, use, catalog, lines) for name in names},
        "services": lines,
        "global_retry": sum(depth.delayed for depth in stats.depths),
        "providers": {
            name: {"running": use.of_provider(name, services), "limit": provider.limit}
            for name, provider in catalog.providers.items()
        },
    }


def _service(name: str, stats: Stats, use: Use, catalog: Catalog, now: int) -> dict[str, Any]:
    depths = [depth for depth in stats.depths if depth.service == name]
    oldest = [depth.oldest for depth in depths if depth.oldest is not None]
    service = catalog.services[name]
    return {
        "waiting": sum(depth.waiting for depth in depths),
        "retry": sum(depth.delayed for depth in depths),
        "running": use.of_service(name),
        "limit": service.limit,
        "health": "paused" if service.paused else _health(name, stats),
        "oldest_age_seconds": seconds(max(0, now - min(oldest))) if oldest else None,
    }


def _region(
    region: str, stats: Stats, use: Use, catalog: Catalog, lines: dict[str, Any]
) -> dict[str, Any]:
    """What may run there waits there, also if it may run elsewhere."""
    here = [service for service in catalog.services.values() if region in service.regions]
    lanes = [(Lane.parse(name), waiting) for name, waiting in stats.lanes.items()]
    names = {service.name for service in here}
    ages = [lines[name]["oldest_age_seconds"] for name in names]
    failing = any(_health(f"{name}@{region}", stats) == "failing" for name in names)
    return {
        "waiting": sum(
            waiting
            for lane, waiting in lanes
            if lane.service in names and (not lane.regions or region in lane.regions)
        ),
        "retry": sum(lines[name]["retry"] for name in names),
        "running": sum(use.of_region(name, region) for name in names),
        "limit": sum(service.regions[region].limit for service in here),
        "health": "failing" if failing else "healthy",
        "oldest_age_seconds": max((age for age in ages if age is not None), default=None),
    }


def _health(name: str, stats: Stats) -> str:
    gate = stats.gates.get(name)
    return "failing" if gate is not None and gate.closed else "healthy"


# --- this process --------------------------------------------------------------------------------
PATIENCE = 1.0


async def livez() -> Response:
    """This process answers."""
    return PlainTextResponse("ok")


async def ready(door: Door) -> Response:
    """It can take jobs: not leaving, the ledger answers."""
    core = door.engine.core
    well = not door.draining and core.ready.is_set()
    if well:
        try:
            async with asyncio.timeout(PATIENCE):
                await core.ledger.keys.any()
        except Exception:  # noqa: BLE001 - whatever it is, it is not ready
            well = False
    if well:
        return PlainTextResponse("ok")
    return PlainTextResponse("not ready", 503, {"Retry-After": "1"})
