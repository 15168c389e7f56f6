"""Webhook routes: read and rotate the signing secrets."""

from __future__ import annotations

from fairlane.api.context import Here, RequestContext
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.responses import SecretsResponse
from fairlane.webhooks import rotate_secret
from fairlane.webhooks.signature import secrets_of

routes = Routes("webhooks")

NOT_KEPT = {"Cache-Control": "no-store"}


@routes.add("GET", "/admin/webhooks/secret", "admin", example=examples.SECRETS)
async def show_secrets(call: Here) -> TypedResponse[SecretsResponse]:
    """List the signing secrets of the tenant's webhooks, newest first. The first request creates
    one."""
    return await _response(call)


@routes.add("POST", "/admin/webhooks/secret/rotate", "admin", example=examples.SECRETS)
async def rotate_secrets(call: Here) -> TypedResponse[SecretsResponse]:
    """Create a new signing secret. For one day webhooks are also signed with the old secrets, so
    that receivers have time to change."""
    await secrets_of(call.engine, call.tenant)  # creates the old secret if there is none
    await rotate_secret(call.engine, call.tenant, actor=call.actor)
    return await _response(call)


async def _response(call: RequestContext) -> TypedResponse[SecretsResponse]:
    secrets = await secrets_of(call.engine, call.tenant)
    return serializers.answer({"secrets": secrets}, headers=NOT_KEPT)
