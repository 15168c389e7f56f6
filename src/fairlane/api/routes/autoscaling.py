"""Autoscaling routes: how much work more workers of a service could do now, as one number."""

from __future__ import annotations

from fairlane.api.context import Here
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routes.status import SlotUse
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.index.index import Stats
from fairlane.model.catalog import Catalog
from fairlane.model.service import Service
from fairlane.responses import ScaleResponse

routes = Routes("autoscaling")


@routes.add("GET", "/api/v1/scale/{service}", "read", example=examples.SCALE, problems=(404,))
async def scale(call: Here, service: str) -> TypedResponse[ScaleResponse]:
    """Get the number to scale the workers of a service by: its running jobs, and the waiting jobs
    that more workers could start now. For KEDA: scaler `metrics-api`, `valueLocation: value`, and
    the capacity of one worker as `targetValue`."""
    engine = call.engine
    if service not in engine.catalog.services and service not in engine.task_types(call.tenant):
        raise ProblemDetails(404, "not_found", f'no service "{service}"')
    stats = await engine.index_stats()
    use = SlotUse(stats, await engine.running_by_service())
    found = engine.catalog.service(service)
    waiting = sum(depth.waiting for depth in stats.depths if depth.service == service)
    running = use.of_service(service)
    startable = min(waiting, free_slots(found, engine.catalog, stats, use, waiting))
    return serializers.answer(
        {
            "service": service,
            "waiting": waiting,
            "running": running,
            "startable": startable,
            "value": running + startable,
        }
    )


def free_slots(
    service: Service, catalog: Catalog, stats: Stats, use: SlotUse, unlimited: int
) -> int:
    """How many more calls of the service its limits allow now; none while it is paused or its
    circuit breaker is open. `unlimited` stands for no limit."""
    if service.paused or _is_open(service.name, stats):
        return 0
    free = [unlimited]
    if service.limit:
        free.append(service.limit - use.of_service(service.name))
    if service.regions and all(region.limit for region in service.regions.values()):
        free.append(
            sum(
                max(0, region.limit - use.of_region(service.name, name))
                for name, region in service.regions.items()
                if not _is_open(f"{service.name}@{name}", stats)
            )
        )
    if service.provider is not None and (limit := catalog.providers[service.provider].limit):
        free.append(limit - use.of_provider(service.provider, catalog.services.values()))
    return max(0, min(free))


def _is_open(name: str, stats: Stats) -> bool:
    breaker = stats.breakers.get(name)
    return breaker is not None and breaker.is_open
