"""`fairlane keys`: who may call. Works beside a running server, which notices within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer
from rich.console import Console
from rich.table import Table

from fairlane.api.credentials import new_key
from fairlane.api.times import iso
from fairlane.clock import SystemClock, seconds
from fairlane.compose import keys_of
from fairlane.config.settings import Settings
from fairlane.errors import FairlaneError
from fairlane.ledger.keybook import KeyBook
from fairlane.model.bounds import LONGEST
from fairlane.model.key import Key

Out = TypeVar("Out")

ACTOR = "cli"
MOST_DAYS = LONGEST // 86_400


def create(settings: Settings, key: Key, days: float | None) -> None:
    """Prints what its holder sends, alone on standard output."""

    async def add(book: KeyBook) -> str:
        now = SystemClock().now()
        until = None if days is None else now + seconds(days * 86_400)
        made, credential = new_key(
            Key("", key.tenant, key.role, "", key.name, key.act_as, key.set_priority, now, until)
        )
        await book.add(made, ACTOR)
        return credential

    typer.echo(_with_book(settings, add))
    typer.echo("kept as a hash: it cannot be shown again", err=True)


def show(settings: Settings) -> None:
    async def all_keys(book: KeyBook) -> list[Key]:
        return await book.all()

    now = SystemClock().now()
    table = Table("id", "name", "tenant", "role", "rights", "made", "state")
    for key in _with_book(settings, all_keys):
        rights = [name for name in ("act_as", "set_priority") if getattr(key, name)]
        state = "holds" if key.holds(now) else "revoked" if key.revoked_at else "expired"
        made = iso(key.created_at)[:16].replace("T", " ")
        table.add_row(key.id, key.name, key.tenant, key.role, ", ".join(rights), made, state)
    Console(width=120).print(table)


def revoke(settings: Settings, name: str) -> None:
    async def end(book: KeyBook) -> bool:
        return await book.revoke(name, SystemClock().now(), ACTOR)

    if not _with_book(settings, end):
        typer.echo(f'no key "{name}"; see them with: fairlane keys list', err=True)
        raise typer.Exit(1)
    typer.echo(f"revoked {name}; servers notice within five seconds")


def _with_book(settings: Settings, act: Callable[[KeyBook], Awaitable[Out]]) -> Out:
    async def run() -> Out:
        async with keys_of(settings) as book:
            return await act(book)

    try:
        return asyncio.run(run())
    except (FairlaneError, OSError) as error:
        typer.echo(f"fairlane: {error}", err=True)
        raise typer.Exit(1) from None
