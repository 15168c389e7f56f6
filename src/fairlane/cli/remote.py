"""HTTP client of the commands that call a running server: its URL, the API key, exit codes.

Exit codes: 0 done, 1 the server refused, 2 wrong usage, 3 the job ended without a result,
69 no answer, 77 the key is missing or has too few rights, 78 bad settings."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from fairlane.client.connection import ApiConnection
    from fairlane.client.errors import ApiError

Out = TypeVar("Out")

REFUSED, USAGE, NOT_COMPLETED = 1, 2, 3
UNAVAILABLE, NO_PERMISSION = 69, 77
"""Exit codes EX_UNAVAILABLE and EX_NOPERM of sysexits.h."""

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
    typer.Option("--key", envvar="FAIRLANE_KEY", help="The API key to send.", show_envvar=True),
]
Config = Annotated[
    Path | None, typer.Option(help="The settings file (default: fairlane.toml, if any).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the server's response as JSON.")]


class ListUnlessNamed(TyperGroup):
    """`fairlane workers` is `fairlane workers list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


class Remote:
    """The server that the options of a command name."""

    def __init__(self, url: str | None, key: str | None, config: Path | None = None) -> None:
        self.url, self.key = server_url(url, config), key

    def call(self, method: str, path: str, sent: Any = None) -> Any:
        """The server's response. An error ends the command."""

        async def once(connection: ApiConnection) -> Any:
            headers = {"Idempotency-Key": os.urandom(16).hex()} if method != "GET" else None
            return await connection.call(method, path, sent, headers=headers)

        answer = self.run(once)
        if not isinstance(answer, dict):
            stop(f"{self.url} is not a Fairlane server; name one with --url")
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
        """Runs several requests over one connection. An error ends the command."""
        import asyncio

        from fairlane.client.connection import ApiConnection
        from fairlane.client.errors import ApiError, Unreachable

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
            why = "this key is not valid" if self.key else "the server requires a key"
            stop(f"{self.url}: {why}; send one with --key or FAIRLANE_KEY", NO_PERMISSION)
        if error.status == 403:
            stop(f"{error}; send a key of the right role with --key", NO_PERMISSION)
        if error.status in AWAY:
            again = "" if "try again" in str(error) else "; try again in a moment"
            stop(f"{error}{again}", UNAVAILABLE)
        is_job = str(error.more.get("instance", "")).startswith("/api/v1/jobs/")
        hint = "; to list jobs: fairlane jobs list" if error.status == 404 and is_job else ""
        stop(f"{error}{hint}", REFUSED)


def stop(message: str, code: int = REFUSED) -> NoReturn:
    """Prints one line on standard error and ends the command."""
    from fairlane.cli.tables import clean

    typer.echo(f"fairlane: {clean(message)}", err=True)
    raise typer.Exit(code)


def server_url(url: str | None, config: Path | None) -> str:
    """The given URL; without one, where the server of the settings listens."""
    if url is None:
        host, port = listening(config)
        return f"http://{EVERY_ADDRESS.get(host, f'[{host}]' if ':' in host else host)}:{port}"
    if not url.startswith(SCHEMES):
        stop(f'--url: "{url}" must begin with http:// or https://', USAGE)
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
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def query(**values: Any) -> str:
    """The query string of the values that are not None."""
    from urllib.parse import urlencode

    text = urlencode(given(**values), doseq=True)
    return f"?{text}" if text else ""


def part(value: str) -> str:
    """A name, escaped for use in a path."""
    from urllib.parse import quote

    return quote(value, safe="")
