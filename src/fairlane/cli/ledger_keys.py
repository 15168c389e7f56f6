"""API keys, directly in the ledger that the settings name. A server may run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import typer

from fairlane.api.auth.key_format import new_key
from fairlane.api.schemas.serializers import key
from fairlane.clock import SystemClock, seconds
from fairlane.compose import keys_of
from fairlane.config.settings import Settings
from fairlane.errors import FairlaneError
from fairlane.ledger.api_keys import ApiKeys
from fairlane.model.key import Key
from fairlane.responses import KeyResponse, NewKeyResponse

Out = TypeVar("Out")

ACTOR = "cli"


def create(settings: Settings, wanted: Key, days: float | None) -> NewKeyResponse:
    """The new key with its credential."""

    async def add(book: ApiKeys) -> NewKeyResponse:
        now = SystemClock().now()
        until = None if days is None else now + seconds(days * 86_400)
        made, credential = new_key(replace(wanted, created_at=now, expires_at=until))
        await book.add(made, ACTOR)
        return {**key(made), "key": credential}

    return _with_book(settings, add)


def listed(settings: Settings) -> list[KeyResponse]:
    """All keys, in the format of the HTTP API."""

    async def all_keys(book: ApiKeys) -> list[Key]:
        return await book.all()

    return [key(each) for each in _with_book(settings, all_keys)]


def revoke(settings: Settings, name: str) -> KeyResponse | None:
    """The revoked key, or None if there is no such key."""

    async def end(book: ApiKeys) -> KeyResponse | None:
        if not await book.revoke(name, SystemClock().now(), ACTOR):
            return None
        found = await book.get(name)
        return None if found is None else key(found)

    return _with_book(settings, end)


def _with_book(settings: Settings, act: Callable[[ApiKeys], Awaitable[Out]]) -> Out:
    async def run() -> Out:
        async with keys_of(settings) as book:
            return await act(book)

    try:
        return asyncio.run(run())
    except (FairlaneError, OSError) as error:
        typer.echo(f"fairlane: {error}", err=True)
        raise typer.Exit(1) from None
