"""`fairlane serve`: the HTTP API and the dispatcher, on an embedded queue or a cluster."""

from __future__ import annotations

import os
import resource
import socket
from functools import partial

import typer
import uvloop

from fairlane.api.app import App, create_app
from fairlane.api.auth.key_format import given_key
from fairlane.api.logs import log_to
from fairlane.api.server import ApiServer, bind
from fairlane.cli.calling import calling
from fairlane.cli.configure import BAD_SETTINGS
from fairlane.cli.example import curl, echo
from fairlane.cli.wait_for_stores import in_one_line, retry_until_ready, started
from fairlane.compose import opened
from fairlane.config.settings import ServerSettings, Settings
from fairlane.engine import Engine
from fairlane.errors import FairlaneError, SetupError
from fairlane.model.key import Key, Role

ADMIN_KEY = "FAIRLANE_ADMIN_KEY"
MAX_OPEN_FILES = 65_536
"""Limit of open files that the server asks for: every connection needs one."""


class Unsafe(SetupError):
    """The server would listen on a public address without requiring an API key."""

    code = "unsafe"


def run(settings: Settings) -> None:
    """Runs until a signal. An error at the start is printed in one line."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, MAX_OPEN_FILES)), hard))
    log_to()
    with in_one_line():
        found = bind(settings.server)
        try:
            uvloop.run(serve(settings, found))
        except Unsafe as error:
            typer.echo(f"fairlane: {error}", err=True)
            raise typer.Exit(BAD_SETTINGS) from None


async def serve(settings: Settings, found: socket.socket) -> None:
    log_to(level=settings.server.log_level, form=settings.server.log_format)
    with found:
        wait = settings.server.wait_for_stores
        async with started(lambda: opened(settings), wait) as engine:
            prepared = partial(prepare, engine, settings)
            keys, app = await retry_until_ready(prepared, wait)
            async with calling(engine, settings) as drain:
                port = found.getsockname()[1]
                for line in welcome(settings, port, keys=keys):
                    typer.echo(line)
                await ApiServer(app, settings.server, drain).run_on(found)


async def prepare(engine: Engine, settings: Settings) -> tuple[bool, App]:
    """Whether there is an API key, and the application."""
    try:
        keys = await prepare_keys(engine, settings.server)
        return keys, await create_app(engine, settings)
    except Exception as error:
        raise engine.explain(error) or error from error


async def prepare_keys(engine: Engine, server: ServerSettings) -> bool:
    """Whether there is an API key. The environment may bring the first one."""
    book = engine.api_keys
    credential = os.environ.get(ADMIN_KEY, "").strip()  # secret files end with a newline
    if credential:
        key = Key("", "default", Role.ADMIN, "", ADMIN_KEY, created_at=engine.clock.now())
        try:
            key = given_key(key, credential)
        except FairlaneError as error:
            raise SetupError(f"{ADMIN_KEY}: {error}") from None
        await book.add(key, ADMIN_KEY)
        known = await book.get(key.id)
        if known is None or known.hash != key.hash:
            raise SetupError(
                f'{ADMIN_KEY}: the key id "{key.id}" is taken by another key, perhaps a revoked '
                "one; choose another id"
            )
    keys = await book.any()
    if not keys and not server.loopback:
        raise Unsafe(
            f"other machines can reach {server.host} and there is no API key; create one with "
            f"fairlane keys create --role admin, or set {ADMIN_KEY}"
        )
    return keys


def welcome(settings: Settings, port: int, *, keys: bool) -> list[str]:
    """The lines that a server prints at its start."""
    server = settings.server
    host = f"[{server.host}]" if ":" in server.host else server.host
    url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104 - shown only
    where = {
        "embedded": f"embedded, the ledger in {server.data}",
        "shared": "the ledger in PostgreSQL, one process",
        "cluster": "a cluster on PostgreSQL and Redis",
    }[server.mode]
    docs = f"{url}/docs" + (" (sign in at the dashboard, or send a key)" if keys else "")
    lines = [f"Fairlane: {where} ({settings.source})", f"  open  {url}/", f"  API   {url}"]
    lines.append(f"  docs  {docs}")
    if not keys:
        lines.append("  keys  none: every program on this machine has full access")
    lines += [f"  note  {note}" for note in settings.notes]
    lines.append("try it:")
    if stand_in := echo(settings, url):
        lines.append(f"  {stand_in}   # in another terminal: stands in for your services")
    return [*lines, f"  {curl(settings, url, keys=keys)}"]
