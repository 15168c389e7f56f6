"""Commands that talk to a running server: where it is, which key they use, and how they end.

Exit codes: 0 done, 1 the server said no, 2 wrong usage, 3 the job ended without a result,
69 no answer, 77 the key is missing or not enough, 78 bad settings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from fairlane.client.connection import ApiConnection, ApiError

Out = TypeVar("Out")

REFUSED, USAGE, NOT_COMPLETED = 1, 2, 3
UNAVAILABLE, NO_PERMISSION = 69, 77
"""What sysexits.h calls EX_UNAVAILABLE and EX_NOPERM."""

AWAY = frozenset({429, 502, 503, 504})
SCHEMES = ("http://", "https://")
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - only to be recognised

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="FAIRLANE_URL",
        help="The server (default: host and port of fairlane.toml, else http://127.0.0.1:8000).",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--key", envvar="FAIRLANE_KEY", help="The key to send.", show_envvar=True),
]
Config = Annotated[Path | None, typer.Option(help="The settings (default: fairlane.toml, if any).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the server's answer as JSON.")]


class ListUnlessNamed(TyperGroup):
    """`fairlane workers` is `fairlane workers list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


class Remote:
    """A server, as the options of a command name it."""

    def __init__(self, url: str | None, key: str | None, config: Path | None = None) -> None:
        self.url, self.key = server_url(url, config), key

    def call(self, method: str, path: str, sent: Any = None) -> Any:
        """What the server answers. An error ends the command."""

        async def once(connection: ApiConnection) -> Any:
            headers = {"Idempotency-Key": os.urandom(16).hex()} if method != "GET" else None
            return await connection.call(method, path, sent, headers=headers)

        answer = self.run(once)
        if not isinstance(answer, dict):
            stop(f"{self.url} does not answer like a Fairlane server; name one with --url")
        return answer

    def every(self, path: str, name: str) -> list[Any]:
        """All entries of a list that is answered in pages."""
        found: list[Any] = []
        cursor = None
        while True:
            page = self.call("GET", f"{path}{query(cursor=cursor)}")
            found += page[name]
            cursor = page.get("next")  # an older server answers with one page
            if cursor is None:
                return found

    def run(self, work: Callable[[ApiConnection], Awaitable[Out]]) -> Out:
        """Several requests over one connection. An error ends the command."""
        from fairlane.client.connection import ApiConnection, ApiError, Unreachable

        async def connected() -> Out:
            connection = ApiConnection(self.url, self.key)
            try:
                return await work(connection)
            finally:
                await connection.close()

        try:
            return asyncio.run(connected())
        except Unreachable as error:
            stop(
                f"{error}; is fairlane serve running there? Name another server with --url",
                UNAVAILABLE,
            )
        except ApiError as error:
            self._refused(error)

    def _refused(self, error: ApiError) -> NoReturn:
        if error.status == 401:
            why = "this key does not hold" if self.key else "it wants a key"
            stop(f"{self.url}: {why}; send one with --key or FAIRLANE_KEY", NO_PERMISSION)
        if error.status == 403:
            stop(f"{error}; send a key of the right role with --key", NO_PERMISSION)
        if error.status in AWAY:
            stop(f"{error}; try again in a moment", UNAVAILABLE)
        is_job = str(error.more.get("instance", "")).startswith("/api/v1/jobs/")
        hint = "; see them with: fairlane jobs list" if error.status == 404 and is_job else ""
        stop(f"{error}{hint}", REFUSED)


def stop(message: str, code: int = REFUSED) -> NoReturn:
    """One line on standard error, and out."""
    from fairlane.cli.tables import clean

    typer.echo(f"fairlane: {clean(message)}", err=True)
    raise typer.Exit(code)


def server_url(url: str | None, config: Path | None) -> str:
    """An address that is given counts; else the settings say where the server listens."""
    if url is None:
        host, port = listening(config)
        return f"http://{EVERY_ADDRESS.get(host, f'[{host}]' if ':' in host else host)}:{port}"
    if not url.startswith(SCHEMES):
        stop(f'--url: "{url}" does not begin with http:// or https://', USAGE)
    return url


def listening(config: Path | None) -> tuple[str, int]:
    from fairlane.cli.configure import BAD_SETTINGS
    from fairlane.config.load import load_server
    from fairlane.config.setting_errors import BadSettings

    try:
        return load_server(config, os.environ)
    except BadSettings as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(BAD_SETTINGS) from None


def given(**values: Any) -> Mapping[str, Any]:
    """Only what was named."""
    return {name: value for name, value in values.items() if value is not None}


def query(**values: Any) -> str:
    """The end of an address that carries these, as far as they were named."""
    from urllib.parse import urlencode

    text = urlencode(given(**values), doseq=True)
    return f"?{text}" if text else ""


def part(value: str) -> str:
    """A name as a part of a path."""
    from urllib.parse import quote

    return quote(value, safe="")
