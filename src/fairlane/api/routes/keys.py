"""Keys: who may call. Each change takes effect everywhere within seconds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from fairlane.api import answers, show
from fairlane.api.credentials import new_key
from fairlane.api.door import Here
from fairlane.api.problems import Problem
from fairlane.api.requests import KeyRequest
from fairlane.api.routing import Routes
from fairlane.model.key import Key, Role

routes = Routes("keys")

KeyId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_\-]{1,64}$", examples=["fl0123456789abcdef"])]


@routes.add("GET", "/admin/keys", "admin", gives=answers.Keys)
async def list_keys(call: Here) -> Response:
    """Every key that was ever made, without its secret."""
    keys = await call.engine.core.ledger.keys.all()
    return show.answer({"keys": [show.key(each) for each in keys]})


@routes.add("POST", "/admin/keys", "admin", gives=answers.NewKey, status=201)
async def create_key(call: Here, wish: KeyRequest) -> Response:
    """The secret is in this answer and nowhere else. With the first key the development mode
    ends."""
    role = Role(wish.role)
    acts = wish.act_as if wish.act_as is not None else role in (Role.CLIENT, Role.ADMIN)
    key, credential = new_key(
        Key(
            id="",
            tenant=wish.tenant,
            role=role,
            hash="",
            name=wish.name,
            act_as=acts,
            set_priority=wish.set_priority,
            created_at=call.engine.core.now(),
            expires_at=wish.expires_at,
        )
    )
    await call.engine.core.ledger.keys.add(key, call.actor)
    call.door.keyring.forget(key.id)
    return show.answer({**show.key(key), "key": credential}, 201)


@routes.add("DELETE", "/admin/keys/{key_id}", "admin", gives=answers.KeyView, problems=(404,))
async def revoke_key(call: Here, key_id: KeyId) -> Response:
    """It opens nothing any more; here at once, in other processes within five seconds."""
    book = call.engine.core.ledger.keys
    if not await book.revoke(key_id, call.engine.core.now(), call.actor):
        raise Problem(404, "not_found", "no such key")
    call.door.keyring.forget(key_id)
    key = await book.get(key_id)
    if key is None:
        raise Problem(404, "not_found", "no such key")
    return show.answer(show.key(key))
