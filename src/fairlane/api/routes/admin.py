"""Administration routes: services, providers, users, credits, audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from fairlane.api.context import Here, RequestContext
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routes.skips_and_credits import CURRENCY, UserId
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
    """Every service with the limits that hold now."""
    services = call.engine.catalog.services.values()
    return serializers.answer({"services": [serializers.service(each) for each in services]})


@routes.add("PUT", "/admin/services/{name}", "admin", example=examples.SERVICE, problems=(404,))
async def change_service(
    call: Here, name: ServiceName, wish: ServiceRequest
) -> TypedResponse[ServiceResponse]:
    """Limits from now on, in every process and through restarts, until the file's own value
    changes. What runs is never cut."""
    if not call.engine.catalog.knows(name):
        raise ProblemDetails(404, "not_found", f'no service "{name}"')
    await _change(call, "services", name, wish)
    return serializers.answer(serializers.service(call.engine.catalog.service(name)))


@routes.add("PUT", "/admin/providers/{name}", "admin", example=examples.PROVIDER, problems=(404,))
async def change_provider(
    call: Here, name: ServiceName, wish: ProviderRequest
) -> TypedResponse[ProviderResponse]:
    """The same for a provider."""
    if name not in call.engine.catalog.providers:
        raise ProblemDetails(404, "not_found", f'no provider "{name}"')
    await _change(call, "providers", name, wish)
    provider = call.engine.catalog.providers[name]
    return serializers.answer({"limit": provider.limit, "rate": provider.rate})


async def _change(call: RequestContext, kind: str, name: str, wish: RequestModel) -> None:
    for setting, value in wish.model_dump(exclude_none=True).items():
        await call.engine.change(kind, name, setting, value, call.actor)


@routes.add("GET", "/admin/users/{user_id}", "admin", example=examples.USER)
async def get_user(call: Here, user_id: UserId) -> TypedResponse[UserResponse]:
    """The tier that is stored for a user, if any, and the balance."""
    tier = await call.engine.tier_of(user_id, call.tenant)
    balance = await call.engine.balance(user_id, call.tenant)
    return serializers.answer({"user_id": user_id, "priority": tier, "balance": balance})


@routes.add("PUT", "/admin/users/{user_id}", "admin", example=examples.USER_TIER)
async def change_user(
    call: Here, user_id: UserId, wish: UserRequest
) -> TypedResponse[UserTierResponse]:
    """The tier of a user's jobs from now on."""
    await call.engine.set_tier(user_id, wish.priority, call.tenant, call.actor)
    return serializers.answer({"user_id": user_id, "priority": wish.priority})


@routes.add(
    "POST",
    "/admin/users/{user_id}/credits",
    "admin",
    example=examples.BALANCE,
    problems=(402, 409),
)
async def add_credits(
    call: Here, user_id: UserId, wish: CreditsRequest
) -> TypedResponse[BalanceResponse]:
    """Give credits, or take them back; once for one `operation_key`."""
    balance = await call.engine.add_credits(
        user_id, wish.amount, wish.operation_key, wish.note, call.tenant, call.actor
    )
    return serializers.answer({"user_id": user_id, "currency": CURRENCY, "balance": balance})


@routes.add("GET", "/admin/audit", "admin", example=examples.AUDIT)
async def list_changes(
    call: Here, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> TypedResponse[AuditResponse]:
    """Who changed what, newest first; of all tenants."""
    changes = await call.engine.audit(limit)
    return serializers.answer({"changes": [serializers.change(each) for each in changes]})
