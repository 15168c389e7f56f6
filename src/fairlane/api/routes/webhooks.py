"""Webhooks: what their receivers verify them with."""

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
    """What webhooks of the tenant are signed with, newest first; made when it is first asked
    for."""
    return await _shown(call)


@routes.add("POST", "/admin/webhooks/secret/rotate", "admin", example=examples.SECRETS)
async def rotate_secrets(call: Here) -> TypedResponse[SecretsResponse]:
    """A new secret from now on. For a day the old ones are signed with too, so that receivers can
    change in peace."""
    await secrets_of(call.engine, call.tenant)  # the first one is an old one, too
    await rotate_secret(call.engine, call.tenant, actor=call.actor)
    return await _shown(call)


async def _shown(call: RequestContext) -> TypedResponse[SecretsResponse]:
    secrets = await secrets_of(call.engine, call.tenant)
    return serializers.answer({"secrets": secrets}, headers=NOT_KEPT)
