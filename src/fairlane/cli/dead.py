"""`fairlane dead`: the dead letter queue of a running server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fairlane.cli.remote import (
    ApiKey,
    AsJson,
    Config,
    ListUnlessNamed,
    Remote,
    Url,
    given,
    part,
    query,
)

app = typer.Typer(cls=ListUnlessNamed, help="Dead letters: jobs that used up their attempts.")

User = Annotated[str | None, typer.Option(help="Only jobs of this user.")]
Name = Annotated[str | None, typer.Option(help="Only jobs of this pipeline, service or task type.")]
Tag = Annotated[str | None, typer.Option(help="Only jobs with this tag.")]
Service = Annotated[str | None, typer.Option(help="Only jobs whose step at this service failed.")]
Region = Annotated[str | None, typer.Option(help="Only jobs whose last attempt ran there.")]
ErrorCode = Annotated[
    str | None,
    typer.Option(
        "--error", help="Only jobs with this error code, or whose last attempt failed so: timeout."
    ),
]
DiedFrom = Annotated[
    str | None,
    typer.Option("--from", help="Only jobs that died then or later: 2026-01-31T12:00:00Z."),
]
DiedTo = Annotated[str | None, typer.Option("--to", help="Only jobs that died before.")]


@app.command("list")
def list_dead(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    user: User = None,
    name: Name = None,
    tag: Tag = None,
    service: Service = None,
    region: Region = None,
    error: ErrorCode = None,
    died_from: DiedFrom = None,
    died_to: DiedTo = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Dead letters to show, at most.")] = 50,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the newest dead letters with their last errors. Needs an admin key."""
    from fairlane.cli.tables import moment, print_json, print_table

    wanted = _filter(user, name, tag, service, region, error, died_from, died_to)
    wanted_page = query(**wanted, limit=limit)
    found = Remote(url, key, config).call("GET", f"/admin/queue-dead{wanted_page}")
    if as_json:
        print_json(found)
        return
    print_table(
        ("job", "what", "user", "region", "died", "why"),
        (
            (
                job["job_id"],
                job["feature_name"],
                job["user_id"],
                job["region"],
                moment(job["finished_at"]),
                job["error"]["message"] if job["error"] else None,
            )
            for job in found["jobs"]
        ),
    )
    typer.echo(f"{len(found['jobs'])} shown, {found['total']} dead letters in all")


@app.command("show")
def show_dead(
    job: Annotated[str, typer.Argument(help="The job's id.")],
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with all of its attempts. Needs an admin key."""
    from fairlane.cli.tables import clean, moment, print_json, print_table

    path = f"/admin/queue-dead/{part(job)}/attempts"
    found = Remote(url, key, config).call("GET", path)
    if as_json:
        print_json(found)
        return
    user = clean(found["user_id"] or "–")
    typer.echo(f"{found['job_id']}  {found['feature_name']}  user {user}")
    typer.echo(f"submitted {moment(found['queued_at'])}, died {moment(found['finished_at'])}")
    print_table(
        ("attempt", "step", "started", "outcome", "worker", "region", "why"),
        (
            (
                each["number"],
                each["step"],
                moment(each["started_at"]),
                each["outcome"],
                each["worker_id"],
                each["region"],
                each["message"],
            )
            for each in found["attempts"]
        ),
    )


@app.command(
    "replay",
    epilog="""Examples: fairlane dead replay 018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f

fairlane dead replay --service inference --region US --error timeout --preview""",
)
def replay_dead(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    job: Annotated[
        str | None, typer.Argument(help="The job's id; without it, every job that matches.")
    ] = None,
    user: User = None,
    name: Name = None,
    tag: Tag = None,
    service: Service = None,
    region: Region = None,
    error: ErrorCode = None,
    died_from: DiedFrom = None,
    died_to: DiedTo = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Change nothing; show what would run.")
    ] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run one dead letter again, or all that match. Each job continues from the failed step and
    gets all of its attempts again. Needs an admin key."""
    from fairlane.cli.tables import print_json

    remote = Remote(url, key, config)
    if job is not None:
        found = remote.call("POST", f"/admin/queue-dead/{part(job)}/replay")
        if as_json:
            print_json(found)
        else:
            typer.echo(f"{found['job_id']} is queued again")
        return
    if preview:
        _show_preview(
            remote,
            _filter(user, name, tag, service, region, error, died_from, died_to),
            as_json=as_json,
        )
        return
    count = _all(
        remote, "replay", _filter(user, name, tag, service, region, error, died_from, died_to)
    )
    if as_json:
        print_json({"count": count})
    else:
        typer.echo(f"{count} jobs are queued again")


@app.command("purge")
def purge_dead(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    user: User = None,
    name: Name = None,
    tag: Tag = None,
    service: Service = None,
    region: Region = None,
    error: ErrorCode = None,
    died_from: DiedFrom = None,
    died_to: DiedTo = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete all dead letters that match, for good. Needs an admin key."""
    from fairlane.cli.tables import print_json

    if not yes:
        typer.confirm("Delete all matching dead letters for good?", abort=True)
    count = _all(
        Remote(url, key, config),
        "purge",
        _filter(user, name, tag, service, region, error, died_from, died_to),
    )
    if as_json:
        print_json({"count": count})
    else:
        typer.echo(f"{count} dead letters deleted")


def _show_preview(remote: Remote, wanted: dict[str, Any], *, as_json: bool) -> None:
    from fairlane.cli.tables import moment, print_json, print_table

    asked = {"filter": wanted, "preview": True}
    found = remote.call("POST", "/admin/queue-dead/replay", asked)
    if as_json:
        print_json(found)
        return
    print_table(
        ("job", "what", "would call", "in", "ran last in", "died", "runnable"),
        (
            (
                each["job_id"],
                each["feature_name"],
                each["service"],
                each["regions"] or "any region",
                each["region"],
                moment(each["died_at"]),
                "yes" if each["runnable"] else "no worker",
            )
            for each in found["would_run"]
        ),
    )
    more = " or more" if found["more"] else ""
    typer.echo(f"{found['count']}{more} would be queued again; nothing has changed")


def _all(remote: Remote, verb: str, wanted: dict[str, Any]) -> int:
    """Repeats the request until the server has no more matching jobs: each is bounded."""
    total = 0
    while True:
        answer = remote.call("POST", f"/admin/queue-dead/{verb}", {"filter": wanted})
        total += int(answer["count"])
        if not answer["more"]:
            return total


def _filter(
    user: str | None,
    name: str | None,
    tag: str | None,
    service: str | None,
    region: str | None,
    error: str | None,
    died_from: str | None,
    died_to: str | None,
) -> dict[str, Any]:
    found = given(
        user_id=user,
        feature_name=name,
        tag=tag,
        service=service,
        region=region,
        error_code=error,
        died_from=died_from,
        died_to=died_to,
    )
    return dict(found)
