"""`fairlane dead`: dead letters of a running server, over HTTP (`FAIRLANE_URL`, `FAIRLANE_KEY`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(help="Jobs whose attempts are used up.", no_args_is_help=True)

User = Annotated[str | None, typer.Option(help="Only those of this user.")]
Name = Annotated[str | None, typer.Option(help="Only those of this pipeline, service or type.")]
Tag = Annotated[str | None, typer.Option(help="Only those with this tag.")]


@app.command("list")
def list_dead(
    user: User = None,
    name: Name = None,
    tag: Tag = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many to show.")] = 50,
) -> None:
    """The newest, with their last errors."""
    from urllib.parse import urlencode

    from rich.console import Console
    from rich.table import Table

    query = urlencode({**_wanted(user, name, tag), "limit": limit})
    found = _call("GET", f"/admin/queue-dead?{query}")
    table = Table("job", "what", "user", "died", "why")
    for job in found["jobs"]:
        why = job["error"]["message"] if job["error"] else ""
        table.add_row(
            job["job_id"], job["feature_name"], job["user_id"], job["finished_at"], why[:80]
        )
    Console(width=150).print(table)
    typer.echo(f"{len(found['jobs'])} shown, {found['total']} dead letters in all")


@app.command("show")
def show_dead(job: Annotated[str, typer.Argument(help="Its id.")]) -> None:
    """One of them, with every attempt."""
    found = _call("GET", f"/admin/queue-dead/{job}/attempts")
    typer.echo(f"{found['job_id']}  {found['feature_name']}  user {found['user_id'] or '–'}")
    typer.echo(f"submitted {found['queued_at']}, died {found['finished_at']}")
    for each in found["attempts"]:
        where = f" in {each['region']}" if each["region"] else ""
        typer.echo(
            f"  {each['number']}. {each['started_at']}  {each['outcome']} on "
            f"{each['worker_id']}{where}: {each['message'] or ''}"
        )


@app.command("replay")
def replay_dead(
    job: Annotated[str | None, typer.Argument(help="One; without it, all that fit.")] = None,
    user: User = None,
    name: Name = None,
    tag: Tag = None,
) -> None:
    """Run one again, or all that fit: on at the step that failed, with all attempts."""
    if job is not None:
        _call("POST", f"/admin/queue-dead/{job}/replay")
        typer.echo(f"{job} is in line again")
        return
    typer.echo(f"{_all('replay', user, name, tag)} are in line again")


@app.command("purge")
def purge_dead(
    user: User = None,
    name: Name = None,
    tag: Tag = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Let all that fit go for good."""
    if not yes:
        typer.confirm("They are gone for good. Sure?", abort=True)
    typer.echo(f"{_all('purge', user, name, tag)} are gone")


def _all(verb: str, user: str | None, name: str | None, tag: str | None) -> int:
    """A bounded number at a time, until there is no more."""
    total = 0
    while True:
        answer = _call("POST", f"/admin/queue-dead/{verb}", {"filter": _wanted(user, name, tag)})
        total += int(answer["count"])
        if not answer["more"]:
            return total


def _wanted(user: str | None, name: str | None, tag: str | None) -> Mapping[str, str]:
    wanted = {"user_id": user, "feature_name": name, "tag": tag}
    return {key: value for key, value in wanted.items() if value is not None}


def _call(method: str, path: str, sent: Any = None) -> Any:
    from fairlane.client.connection import Connection
    from fairlane.errors import FairlaneError

    async def call() -> Any:
        connection = Connection()
        try:
            return await connection.call(method, path, sent)
        finally:
            await connection.close()

    try:
        return asyncio.run(call())
    except FairlaneError as error:
        typer.echo(f"fairlane: {error}", err=True)
        raise typer.Exit(1) from None
