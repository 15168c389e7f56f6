"""`fairlane services`: queue lengths, running jobs, limits and pauses of services."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.limits import Limit, Rate, change_limits
from fairlane.cli.remote import ApiKey, AsJson, Config, ListUnlessNamed, Remote, Url, given

app = typer.Typer(cls=ListUnlessNamed, help="Services: waiting and running jobs, limits, pauses.")

Name = Annotated[str, typer.Argument(help="The service.")]


@app.command("list")
def list_services(
    url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """List the services: waiting and running jobs, limit, and health."""
    from fairlane.cli.tables import duration, print_json, print_table

    found = Remote(url, key, config).call("GET", "/queue/status")
    if as_json:
        print_json(found)
        return
    rows = [(name, None, line) for name, line in found["services"].items()]
    rows += [(None, region, line) for region, line in found["regions"].items()]
    print_table(
        ("service", "region", "waiting", "retry", "running", "limit", "health", "oldest waits"),
        (
            (
                name,
                region,
                line["waiting"],
                line["retry"],
                line["running"],
                line["limit"] or "none",
                line["health"],
                duration(line["oldest_age_seconds"]),
            )
            for name, region, line in rows
        ),
    )
    for name, line in found["providers"].items():
        typer.echo(f"provider {name}: {line['running']} running, limit {line['limit'] or 'none'}")


@app.command(
    "set", epilog="Example: fairlane services set image_gen --limit 2    (0 means no limit)"
)
def set_service(
    name: Name,
    limit: Limit = None,
    rate: Rate = None,
    waiting: Annotated[
        int | None, typer.Option(min=0, help="Queue limit: jobs that may wait for the service.")
    ] = None,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Change limits of a running service. The change holds in every process and after restarts.
    Needs an admin key."""
    wish = given(limit=limit, rate=rate, waiting=waiting)
    if not wish:
        raise typer.BadParameter("name what to change: --limit, --rate or --waiting")
    change_limits(Remote(url, key, config), "services", name, dict(wish), as_json)


@app.command("pause")
def pause_service(
    name: Name, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Start no more jobs at this service; running jobs continue. Needs an admin key."""
    change_limits(Remote(url, key, config), "services", name, {"paused": True}, as_json)


@app.command("unpause")
def unpause_service(
    name: Name, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Start jobs at a paused service again. Needs an admin key."""
    change_limits(Remote(url, key, config), "services", name, {"paused": False}, as_json)
