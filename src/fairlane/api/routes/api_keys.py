"""API key routes. A change takes effect in every process within seconds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from fairlane.api.auth.key_format import new_key
from fairlane.api.context import Here
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.pagination import cursor, read_cursor
from fairlane.api.routes.jobs import MAX_PAGE, Cursor, Limit
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.requests import KeyRequest
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.model.key import Key, Role
from fairlane.responses import KeyListResponse, KeyResponse, NewKeyResponse

routes = Routes("keys")

KeyId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_\-]{1,64}$", examples=["fl0123456789abcdef"])]


@routes.add("GET", "/admin/keys", "admin", example=examples.KEYS)
async def list_keys(
    call: Here,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
    limit: Limit = MAX_PAGE,
) -> TypedResponse[KeyListResponse]:
    """List all keys, revoked ones included, without their secrets, oldest first."""
    after = read_cursor(call.app_context.signer, "keys", cursor_)
    found = await call.engine.api_keys.page(after, limit + 1)
    last = found[limit - 1].id if len(found) > limit else None
    return serializers.answer(
        {
            "keys": [serializers.key(each) for each in found[:limit]],
            "next": cursor(call.app_context.signer, "keys", last),
        }
    )


@routes.add("POST", "/admin/keys", "admin", example=examples.NEW_KEY, status=201)
async def create_key(call: Here, body: KeyRequest) -> TypedResponse[NewKeyResponse]:
    """Create a key. Only this response contains the secret. The first key ends development
    mode."""
    role = Role(body.role)
    acts = body.act_as if body.act_as is not None else role in (Role.CLIENT, Role.ADMIN)
    key, credential = new_key(
        Key(
            id="",
            tenant=body.tenant,
            role=role,
            hash="",
            name=body.name,
            act_as=acts,
            set_priority=body.set_priority,
            created_at=call.engine.clock.now(),
            expires_at=body.expires_at,
        )
    )
    await call.engine.api_keys.add(key, call.actor)
    call.app_context.key_cache.forget(key.id)
    return serializers.answer({**serializers.key(key), "key": credential}, 201)


@routes.add(
    "DELETE", "/admin/keys/{key_id}", "admin", example=examples.REVOKED_KEY, problems=(404,)
)
async def revoke_key(call: Here, key_id: KeyId) -> TypedResponse[KeyResponse]:
    """Revoke a key: in this process at once, in other processes within five seconds."""
    book = call.engine.api_keys
    if not await book.revoke(key_id, call.engine.clock.now(), call.actor):
        raise ProblemDetails(404, "not_found", "no such key")
    call.app_context.key_cache.forget(key_id)
    key = await book.get(key_id)
    if key is None:
        raise ProblemDetails(404, "not_found", "no such key")
    return serializers.answer(serializers.key(key))
