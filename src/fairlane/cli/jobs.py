"""`fairlane jobs`: submit, look, follow and move jobs of a running server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlane.cli.remote import (
    NOT_COMPLETED,
    USAGE,
    ApiKey,
    AsJson,
    Config,
    Remote,
    Url,
    given,
    part,
    query,
    stop,
)

if TYPE_CHECKING:
    from fairlane.client.connection import ApiConnection

app = typer.Typer(help="Submit jobs, look at them, follow and move them.", no_args_is_help=True)

MOST_ON_A_PAGE = 200

JobId = Annotated[str, typer.Argument(help="The job's id.")]


@app.command(
    "list",
    epilog="Example: fairlane jobs list --status queued --status running --user ada",
)
def list_jobs(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    status: Annotated[
        list[str] | None,
        typer.Option(help="queued, running, completed, failed, cancelled, dead; several may be."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    name: Annotated[str | None, typer.Option(help="Only this pipeline, service or type.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many to show.")] = 50,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """The newest jobs."""
    from fairlane.cli.tables import duration, moment, print_json, print_table

    async def pages(connection: ApiConnection) -> dict[str, Any]:
        jobs: list[Any] = []
        cursor = None
        while True:
            size = min(limit - len(jobs), MOST_ON_A_PAGE)
            wanted = query(
                status=status, user_id=user, feature_name=name, tag=tag, limit=size, cursor=cursor
            )
            page = await connection.call("GET", f"/api/v1/jobs{wanted}")
            jobs, cursor = [*jobs, *page["jobs"]], page["next"]
            if cursor is None or len(jobs) >= limit:
                return {"jobs": jobs, "next": cursor}

    found = Remote(url, key, config).run(pages)
    if as_json:
        print_json(found)
        return
    print_table(
        ("job", "what", "user", "status", "tier", "step", "queued", "waited", "error"),
        (
            (
                job["job_id"],
                job["feature_name"],
                job["user_id"],
                job["status"],
                job["effective_priority"],
                f"{job['current_step_index']}/{job['total_steps']}",
                moment(job["queued_at"]),
                duration(job["waited_seconds"]),
                job["error"]["message"] if job["error"] else None,
            )
            for job in found["jobs"]
        ),
    )
    more = "; there are more: --limit" if found["next"] else ""
    typer.echo(f"{len(found['jobs'])} shown{more}")


@app.command("show", epilog="Example: fairlane jobs show 018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f")
def show_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """One job: where it stands, why it waits, and what its steps have made."""
    from fairlane.cli.tables import print_json

    found = Remote(url, key, config).call("GET", f"/api/v1/jobs/{part(job)}")
    if as_json:
        print_json(found)
    else:
        _print_job(found)


@app.command(
    "submit",
    epilog="""Examples: fairlane jobs submit hello '{"text": "hi"}' --wait

fairlane jobs submit text_only @input.json --user ada --tag launch

echo '{"prompt": "a heron"}' | fairlane jobs submit image_gen - --json""",
)
def submit_job(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    name: Annotated[str, typer.Argument(help="A pipeline, a service or a task type.")],
    sent: Annotated[
        str | None,
        typer.Argument(metavar="[INPUT]", help="JSON, @file with JSON, or - for standard input."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="On whose behalf.")] = None,
    tier: Annotated[str | None, typer.Option(help="The tier (needs the right to set it).")] = None,
    model: Annotated[str | None, typer.Option(help="The model it needs.")] = None,
    region: Annotated[
        list[str] | None, typer.Option(help="Where it may run; several may be named.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; several may be named.")] = None,
    run_at: Annotated[
        str | None, typer.Option(help="Not before this time: 2026-01-31T12:00:00Z.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for one attempt.")] = None,
    set_fields: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other field of the request: duration=30, as JSON or text."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow it to its end and print the result.")
    ] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job. It is durable when its id is printed."""
    from fairlane.cli.tables import duration, print_json

    body = given(
        feature_name=name,
        input_data=None if sent is None else _input(sent),
        user_id=user,
        priority=tier,
        model=model,
        regions=region or None,
        tags=tag or None,
        run_at=run_at,
        timeout_seconds=timeout,
    )
    body = {**body, **dict(map(_field, set_fields or ()))}
    remote = Remote(url, key, config)
    accepted = remote.call("POST", "/api/v1/jobs", body)
    if wait:
        _follow(remote, accepted["job_id"], as_json)
        return
    if as_json:
        print_json(accepted)
        return
    eta = accepted["eta"]
    place = f", position {accepted['position']}" if accepted["position"] else ""
    soon = f", starts in about {duration(eta['p50_seconds'])}" if eta else ""
    typer.echo(f"{accepted['job_id']}  {accepted['status']}{place}{soon}")


@app.command("cancel")
def cancel_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Cancel a job, at once and for good."""
    _moved(Remote(url, key, config).call("DELETE", f"/api/v1/jobs/{part(job)}"), as_json)


@app.command("resume")
def resume_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Go on at the step that failed, with the attempts already used."""
    _moved(Remote(url, key, config).call("POST", f"/api/v1/jobs/{part(job)}/resume"), as_json)


@app.command("replay")
def replay_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Go on at the step that failed, with all attempts again. Needs an admin key."""
    _moved(Remote(url, key, config).call("POST", f"/api/v1/jobs/{part(job)}/replay"), as_json)


@app.command("explain")
def explain_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Why a job waits, and what would help."""
    from fairlane.cli.tables import clean, duration, moment, print_fields, print_json

    found = Remote(url, key, config).call("GET", f"/api/v1/jobs/{part(job)}/explain")
    if as_json:
        print_json(found)
        return
    eta = found["eta"]
    print_fields(
        [
            ("job", found["job_id"]),
            ("status", found["status"]),
            ("position", found["position"]),
            ("starts in", duration(eta["p50_seconds"]) if eta else None),
            ("promoted", moment(found["next_promotion_at"])),
        ]
    )
    for title, reasons in (("why", found["reasons"]), ("what would help", found["changes"])):
        if reasons:
            typer.echo(f"{title}:")
        for each in reasons:
            typer.echo(f"  {clean(each['text'])}")


@app.command("follow", epilog="Example: fairlane jobs follow 018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f")
def follow_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Print what happens to a job until it is over, then its result.

    Ends with 3 if the job did not complete. With --json: an event a line, then the job."""
    _follow(Remote(url, key, config), job, as_json)


@app.command("export")
def export_jobs(
    path: Annotated[Path, typer.Argument(help="The file to write; .gz is compressed.")],
    config: Config = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Users get numbers instead of their names.")
    ] = False,
) -> None:
    """Write every job that has run as a line of JSON, for fairlane simulate.

    Reads the ledger that the settings name; no server is asked."""
    from fairlane.cli import configure
    from fairlane.cli.export import export

    export(configure.settings(config), path, anonymous)


# --- what they share -----------------------------------------------------------------------------
def _follow(remote: Remote, job: str, as_json: bool) -> None:
    import dataclasses

    import orjson

    from fairlane.cli.tables import clean
    from fairlane.client import AsyncClient

    async def follow(connection: ApiConnection) -> dict[str, Any]:
        await connection.call("GET", f"/api/v1/jobs/{part(job)}")  # a wrong id is told at once
        async with AsyncClient(remote.url, remote.key) as client:
            async for event in client.events(job):
                if as_json:
                    typer.echo(orjson.dumps(dataclasses.asdict(event)).decode())
                elif event.seq is not None:
                    typer.echo(f"{(event.at or '')[11:19]}  {clean(event.message)}")
        return dict(await connection.call("GET", f"/api/v1/jobs/{part(job)}"))

    found = remote.run(follow)
    if as_json:
        typer.echo(orjson.dumps(found).decode())
    else:
        _print_job(found)
    if found["status"] != "completed":
        raise typer.Exit(NOT_COMPLETED)


def _print_job(found: dict[str, Any]) -> None:
    from fairlane.cli.tables import duration, moment, print_fields, print_json

    eta, error, progress = found["eta"], found["error"], found["progress"]
    print_fields(
        [
            ("job", found["job_id"]),
            ("what", found["feature_name"]),
            ("user", found["user_id"]),
            ("status", found["status"]),
            ("tier", found["effective_priority"]),
            ("step", f"{found['current_step_index']}/{found['total_steps']}"),
            ("position", found["position"]),
            ("starts in", duration(eta["p50_seconds"]) if eta else None),
            ("reason", found["reason"]),
            ("progress", f"{progress['percent']:g} % {progress['text']}" if progress else None),
            ("queued", moment(found["queued_at"])),
            ("started", moment(found["started_at"])),
            ("finished", moment(found["finished_at"])),
            ("waited", duration(found["waited_seconds"])),
            ("error", f"{error['code']}: {error['message']}" if error else None),
            ("trace", found["trace_id"]),
            ("tags", found["tags"] or None),
        ]
    )
    if found["context"]:
        typer.echo("results:")
        print_json(found["context"])


def _moved(answer: dict[str, Any], as_json: bool) -> None:
    from fairlane.cli.tables import print_json

    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{answer['job_id']}  {answer['status']}")


def _input(text: str) -> Any:
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except OSError as error:
            stop(f"{text[1:]} cannot be read: {error.strerror}", USAGE)
    return _json(text)


def _json(text: str) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        stop(f"the input is not JSON ({error}); text is '\"text\"', a file @file.json", USAGE)


def _field(text: str) -> tuple[str, Any]:
    import orjson

    name, equals, value = text.partition("=")
    if not equals:
        stop(f'--set takes field=value, not "{text}"', USAGE)
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value
