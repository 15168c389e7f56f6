"""Administration routes: services, providers, users, credits, audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from fairlane.api.context import Here, RequestContext
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routes.skips_and_credits import UserId
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.requests import (
    CreditsRequest,
    Name,
    ProviderRequest,
    RequestModel,
    ServiceRequest,
    UserRequest,
)
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.responses import (
    AuditResponse,
    BalanceResponse,
    ProviderResponse,
    ServiceListResponse,
    ServiceResponse,
    UserResponse,
    UserTierResponse,
)

routes = Routes("administration")

ServiceName = Annotated[Name, Path(examples=["image_gen"])]


@routes.add("GET", "/admin/services", "admin", example=examples.SERVICES)
async def list_services(call: Here) -> TypedResponse[ServiceListResponse]:
    """List every service with its current limits."""
    services = call.engine.catalog.services.values()
    return serializers.answer({"services": [serializers.service(each) for each in services]})


@routes.add("PUT", "/admin/services/{name}", "admin", example=examples.SERVICE, problems=(404,))
async def change_service(
    call: Here, name: ServiceName, body: ServiceRequest
) -> TypedResponse[ServiceResponse]:
    """Change the limits of a service, in every process. The change survives restarts until the
    value in the configuration file changes. Running jobs are not stopped."""
    if not call.engine.catalog.knows(name):
        raise ProblemDetails(404, "not_found", f'no service "{name}"')
    await _change(call, "services", name, body)
    return serializers.answer(serializers.service(call.engine.catalog.service(name)))


@routes.add("PUT", "/admin/providers/{name}", "admin", example=examples.PROVIDER, problems=(404,))
async def change_provider(
    call: Here, name: ServiceName, body: ProviderRequest
) -> TypedResponse[ProviderResponse]:
    """Change the limits of a provider, like those of a service."""
    if name not in call.engine.catalog.providers:
        raise ProblemDetails(404, "not_found", f'no provider "{name}"')
    await _change(call, "providers", name, body)
    provider = call.engine.catalog.providers[name]
    return serializers.answer({"limit": provider.limit, "rate": provider.rate})


async def _change(call: RequestContext, kind: str, name: str, body: RequestModel) -> None:
    for setting, value in body.model_dump(exclude_none=True).items():
        await call.engine.change(kind, name, setting, value, call.actor)


@routes.add("GET", "/admin/users/{user_id}", "admin", example=examples.USER)
async def get_user(call: Here, user_id: UserId) -> TypedResponse[UserResponse]:
    """Get a user's stored tier, null if there is none, and the balance."""
    tier = await call.engine.tier_of(user_id, call.tenant)
    balance = await call.engine.balance(user_id, call.tenant)
    return serializers.answer({"user_id": user_id, "priority": tier, "balance": balance})


@routes.add("PUT", "/admin/users/{user_id}", "admin", example=examples.USER_TIER)
async def change_user(
    call: Here, user_id: UserId, body: UserRequest
) -> TypedResponse[UserTierResponse]:
    """Set the tier of a user's future jobs."""
    await call.engine.set_tier(user_id, body.priority, call.tenant, call.actor)
    return serializers.answer({"user_id": user_id, "priority": body.priority})


@routes.add(
    "POST",
    "/admin/users/{user_id}/credits",
    "admin",
    example=examples.BALANCE,
    problems=(402, 409),
)
async def add_credits(
    call: Here, user_id: UserId, body: CreditsRequest
) -> TypedResponse[BalanceResponse]:
    """Add or remove credits, once per `operation_key`."""
    balance = await call.engine.add_credits(
        user_id, body.amount, body.operation_key, body.note, call.tenant, call.actor
    )
    currency = call.engine.catalog.credits.currency
    return serializers.answer({"user_id": user_id, "currency": currency, "balance": balance})


@routes.add("GET", "/admin/audit", "admin", example=examples.AUDIT)
async def list_changes(
    call: Here, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> TypedResponse[AuditResponse]:
    """List administrative changes with their actors, newest first, for all tenants."""
    changes = await call.engine.audit(limit)
    return serializers.answer({"changes": [serializers.change(each) for each in changes]})
