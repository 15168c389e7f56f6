"""`fairlane webhooks`: show and rotate the signing secrets."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url

app = typer.Typer(help="Webhooks: the signing secrets.", no_args_is_help=True)


@app.command("secret")
def show_secret(
    url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Print the signing secrets, newest first. The first call creates one. Needs an admin key."""
    _show(Remote(url, key, config).call("GET", "/admin/webhooks/secret"), as_json)


@app.command("rotate")
def rotate_secret(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a new signing secret. For one day webhooks are signed with the old one, too. Needs an
    admin key."""
    if not yes:
        typer.confirm("Create a new signing secret? Receivers have a day to change.", abort=True)
    _show(Remote(url, key, config).call("POST", "/admin/webhooks/secret/rotate"), as_json)


def _show(found: dict[str, list[str]], as_json: bool) -> None:
    from fairlane.cli.tables import print_json

    if as_json:
        print_json(found)
    else:
        for secret in found["secrets"]:
            typer.echo(secret)
