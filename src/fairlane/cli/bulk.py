"""The command `fairlane bulk`: one bulk action over all jobs that match, with a preview first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url, given, part, stop

if TYPE_CHECKING:
    from fairlane.client.connection import ApiConnection

Action = Literal["cancel", "replay", "resume", "purge"]
POLL_SECONDS = 0.5
MAX_POLLS_WITHOUT_PROGRESS = 120
"""The server marks an action as interrupted long before."""

EPILOG = """\
Examples: fairlane bulk cancel --status queued --name image_gen

fairlane bulk replay --status dead --tag nightly --preview"""


def bulk(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    action: Annotated[Action, typer.Argument(help="cancel, replay, resume or purge.")],
    status: Annotated[
        list[str] | None, typer.Option(help="Only jobs in this status; repeatable.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Only jobs of this pipeline, service or task type.")
    ] = None,
    service: Annotated[str | None, typer.Option(help="Only jobs at this service.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag.")] = None,
    tier: Annotated[str | None, typer.Option(help="Only jobs of this tier.")] = None,
    region: Annotated[str | None, typer.Option(help="Only jobs of this region.")] = None,
    model: Annotated[str | None, typer.Option(help="Only jobs of this model.")] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show what would happen.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Cancel, replay, resume or purge all jobs that match. It shows how many and which, and asks
    first. Jobs that change in between are left alone. Needs an admin key."""
    from fairlane.cli.tables import print_json

    remote = Remote(url, key, config)
    wanted = given(
        status=status,
        user_id=user,
        feature_name=name,
        service=service,
        tag=tag,
        tier=tier,
        region=region,
        model=model,
    )
    found = remote.call("POST", "/admin/bulk/preview", {"action": action, "filter": dict(wanted)})
    if preview and as_json:
        print_json(found)
        return
    if not as_json:
        _show(action, found)
    if preview or not found["count"]:
        return
    if not yes:
        typer.confirm(f"{action.capitalize()} {_number(found)} jobs?", abort=True)
    remote.call("POST", f"/admin/bulk/{part(found['bulk_id'])}")
    ended = remote.run(lambda connection: _followed(connection, found["bulk_id"]))
    if as_json:
        print_json(ended)
    else:
        left = ended["changed"] + ended["skipped"]
        typer.echo(f"{ended['done']:,} done, {left:,} left alone, {ended['failed']:,} failed")


async def _followed(connection: ApiConnection, bulk_id: str) -> dict[str, Any]:
    """Waits for the end of the action, and returns its counts."""
    import asyncio

    seen, patience = -1, MAX_POLLS_WITHOUT_PROGRESS
    while True:
        found: dict[str, Any] = await connection.call("GET", f"/admin/bulk/{part(bulk_id)}")
        if found["status"] == "done":
            return found
        if found["status"] == "interrupted":
            stop(
                f"bulk action {bulk_id} was interrupted after {found['done']:,} of "
                f"{found['count']:,} jobs, because its server ended; run the command again for "
                "the rest"
            )
        handled = sum(found[name] for name in ("done", "changed", "skipped", "failed"))
        patience = MAX_POLLS_WITHOUT_PROGRESS if handled != seen else patience - 1
        seen = handled
        if not patience:
            stop(f"bulk action {bulk_id} makes no progress after {seen:,} jobs; preview it again")
        await asyncio.sleep(POLL_SECONDS)


def _show(action: str, found: dict[str, Any]) -> None:
    from fairlane.cli.tables import print_table

    states = ", ".join(f"{n:,} {state}" for state, n in found["by_state"].items())
    typer.echo(f"{action}: {_number(found)} jobs ({states or 'none'})")
    for each in found["left_out"]:
        typer.echo(f"  left out: {each['count']:,}, {each['reason']}")
    if found["sample"]:
        print_table(
            ("job", "what", "user", "status"),
            (
                (each["job_id"], each["feature_name"], each["user_id"], each["status"])
                for each in found["sample"]
            ),
        )


def _number(found: dict[str, Any]) -> str:
    """How many jobs the action is about. Beyond the server's limit it takes the newest ones."""
    return f"{found['count']:,}" if found["exact"] else f"the newest {found['count']:,}"
