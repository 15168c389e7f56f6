"""`fairlane jobs`: submit, list, follow, cancel, resume and replay jobs of a running server."""

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

app = typer.Typer(
    help="Submit, list, follow, cancel, resume and replay jobs.", no_args_is_help=True
)

MAX_PAGE_JOBS = 200

JobId = Annotated[str, typer.Argument(help="The job's id.")]


@app.command(
    "list",
    epilog="Example: fairlane jobs list --status queued --status running --user ada",
)
def list_jobs(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Only jobs in this status: queued, running, completed, failed, cancelled or dead; "
            "repeatable."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Only jobs of this pipeline, service or task type.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag.")] = None,
    tier: Annotated[str | None, typer.Option(help="Only jobs of this tier.")] = None,
    service: Annotated[str | None, typer.Option(help="Only jobs at this service.")] = None,
    region: Annotated[str | None, typer.Option(help="Only jobs of this region.")] = None,
    model: Annotated[str | None, typer.Option(help="Only jobs of this model.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Jobs to show, at most.")] = 50,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the newest jobs."""
    from fairlane.cli.tables import duration, moment, print_json, print_table

    async def pages(connection: ApiConnection) -> dict[str, Any]:
        jobs: list[Any] = []
        cursor = None
        while True:
            size = min(limit - len(jobs), MAX_PAGE_JOBS)
            wanted = query(
                status=status,
                user_id=user,
                feature_name=name,
                tag=tag,
                tier=tier,
                service=service,
                region=region,
                model=model,
                limit=size,
                cursor=cursor,
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
    more = "; for more, raise --limit" if found["next"] else ""
    typer.echo(f"{len(found['jobs'])} shown{more}")


@app.command("show", epilog="Example: fairlane jobs show 018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f")
def show_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Show one job: its state, why it waits, and the results of its steps."""
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
    user: Annotated[
        str | None, typer.Option(help="The user whose job it is (needs the right act_as).")
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option("--tier", "--priority", help="The tier (needs the right set_priority)."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model that the job needs.")] = None,
    region: Annotated[
        list[str] | None, typer.Option(help="A region where it may run; repeatable.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; repeatable.")] = None,
    run_at: Annotated[
        str | None, typer.Option(help="Start no earlier than this time: 2026-01-31T12:00:00Z.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="The time limit of one attempt, in seconds.")
    ] = None,
    set_fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Another field of the request as FIELD=VALUE, such as duration=30; the value is "
            "JSON or text; repeatable.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job ends and print its result.")
    ] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job. When its id is printed, the job is stored durably."""
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
    """Cancel a job, at once. A cancelled job cannot be resumed."""
    _moved(Remote(url, key, config).call("DELETE", f"/api/v1/jobs/{part(job)}"), as_json)


@app.command("resume")
def resume_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Resume a failed job from the failed step. Attempts already used still count."""
    _moved(Remote(url, key, config).call("POST", f"/api/v1/jobs/{part(job)}/resume"), as_json)


@app.command("replay")
def replay_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Replay a failed or dead job from the failed step, with all attempts again. Needs an admin
    key."""
    _moved(Remote(url, key, config).call("POST", f"/api/v1/jobs/{part(job)}/replay"), as_json)


@app.command("explain")
def explain_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Explain why a job waits, and what would help."""
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
    """Print the events of a job until it ends, then its result.

    Exits with 3 if the job did not complete. With --json: one event per line, then the job."""
    _follow(Remote(url, key, config), job, as_json)


@app.command("export")
def export_jobs(
    path: Annotated[Path, typer.Argument(help="The file to write; a .gz file is compressed.")],
    config: Config = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Write numbers instead of user names.")
    ] = False,
) -> None:
    """Write every job that has run as one line of JSON, for fairlane simulate.

    Reads the ledger that the settings name, without a server."""
    from fairlane.cli import configure
    from fairlane.cli.export import export

    export(configure.settings(config), path, anonymous)


# --- shared by several commands ------------------------------------------------------------------
def _follow(remote: Remote, job: str, as_json: bool) -> None:
    import dataclasses

    import orjson

    from fairlane.cli.tables import clean
    from fairlane.client import AsyncClient

    async def follow(connection: ApiConnection) -> dict[str, Any]:
        await connection.call("GET", f"/api/v1/jobs/{part(job)}")  # reports a wrong id at once
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
            stop(f"cannot read {text[1:]}: {error.strerror}; name another file", USAGE)
    return _json(text)


def _json(text: str) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        stop(
            f"the input is not JSON ({error}); write text as '\"text\"', a file as @file.json",
            USAGE,
        )


def _field(text: str) -> tuple[str, Any]:
    import orjson

    name, equals, value = text.partition("=")
    if not equals:
        stop(f'--set: "{text}" is not FIELD=VALUE; write for example --set duration=30', USAGE)
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value
