"""`fairlane providers`: limits of the companies that host several services."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.limits import Limit, Rate, change_limits
from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url, given

app = typer.Typer(help="Providers: their limits over all services.", no_args_is_help=True)


@app.command("set", epilog="Example: fairlane providers set modal --limit 10    (0 means no limit)")
def set_provider(
    name: Annotated[str, typer.Argument(help="The provider.")],
    limit: Limit = None,
    rate: Rate = None,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Change limits of a provider. The change holds in every process and after restarts. Needs an
    admin key."""
    wish = given(limit=limit, rate=rate)
    if not wish:
        raise typer.BadParameter("name what to change: --limit or --rate")
    change_limits(Remote(url, key, config), "providers", name, dict(wish), as_json)
