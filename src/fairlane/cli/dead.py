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


@app.command("list")
def list_dead(
    user: User = None,
    name: Name = None,
    tag: Tag = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Dead letters to show, at most.")] = 50,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the newest dead letters with their last errors. Needs an admin key."""
    from fairlane.cli.tables import moment, print_json, print_table

    wanted = query(**_filter(user, name, tag), limit=limit)
    found = Remote(url, key, config).call("GET", f"/admin/queue-dead{wanted}")
    if as_json:
        print_json(found)
        return
    print_table(
        ("job", "what", "user", "died", "why"),
        (
            (
                job["job_id"],
                job["feature_name"],
                job["user_id"],
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

fairlane dead replay --name image_gen""",
)
def replay_dead(
    job: Annotated[
        str | None, typer.Argument(help="The job's id; without it, every job that matches.")
    ] = None,
    user: User = None,
    name: Name = None,
    tag: Tag = None,
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
    count = _all(remote, "replay", _filter(user, name, tag))
    if as_json:
        print_json({"count": count})
    else:
        typer.echo(f"{count} jobs are queued again")


@app.command("purge")
def purge_dead(
    user: User = None,
    name: Name = None,
    tag: Tag = None,
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
    count = _all(Remote(url, key, config), "purge", _filter(user, name, tag))
    if as_json:
        print_json({"count": count})
    else:
        typer.echo(f"{count} dead letters deleted")


def _all(remote: Remote, verb: str, wanted: dict[str, Any]) -> int:
    """Repeats the request until the server has no more matching jobs: each is bounded."""
    total = 0
    while True:
        answer = remote.call("POST", f"/admin/queue-dead/{verb}", {"filter": wanted})
        total += int(answer["count"])
        if not answer["more"]:
            return total


def _filter(user: str | None, name: str | None, tag: str | None) -> dict[str, Any]:
    return dict(given(user_id=user, feature_name=name, tag=tag))
