"""`fairlane jobs link` and `fairlane jobs timeline`: what the pages of one job show."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url, given, part

JobId = Annotated[str, typer.Argument(help="The job's id.")]


def link_job(
    job: JobId,
    expires: Annotated[
        int | None, typer.Option(min=60, help="Seconds until the link ends.")
    ] = None,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a link for the end user of a job: its place, range and result, and nothing of others."""
    from fairlane.cli.tables import moment, print_json

    remote = Remote(url, key, config)
    wish = dict(given(expires_seconds=expires))
    found = remote.call("POST", f"/api/v1/jobs/{part(job)}/link", wish)
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{remote.url.rstrip('/')}{found['url']}")
        typer.echo(f"valid until {moment(found['expires_at'])}")


def timeline_job(
    job: JobId, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Show when a job waited and ran: every step and attempt, and what it waited for."""
    from fairlane.cli.tables import duration, print_json, print_table

    found = Remote(url, key, config).call("GET", f"/api/v1/jobs/{part(job)}/timeline")
    if as_json:
        print_json(found)
        return
    print_table(
        ("step", "service", "attempt", "what", "from", "lasted", "region", "outcome", "note"),
        (
            (
                each["step"],
                each["service"],
                each["attempt"],
                each["kind"],
                _moment(each["from"]),
                duration((each["to"] - each["from"]) / 1000) if each["to"] else "still",
                each["region"],
                each["outcome"],
                each["note"],
            )
            for each in found["spans"]
        ),
    )
    totals = ", ".join(f"{duration(n)} {kind}" for kind, n in found["totals"].items() if n)
    typer.echo(totals or "nothing yet")


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
