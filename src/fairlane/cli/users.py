"""`fairlane users`: tiers and credits of users."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url, part

app = typer.Typer(help="Users of the key's tenant: tiers and credits.", no_args_is_help=True)

User = Annotated[str, typer.Argument(help="The user's id.")]


@app.command("show", epilog="Example: fairlane users show ada")
def show_user(
    user: User, url: Url = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Show a user's stored tier and credit balance. Needs an admin key."""
    from fairlane.cli.tables import print_fields, print_json

    found = Remote(url, key, config).call("GET", f"/admin/users/{part(user)}")
    if as_json:
        print_json(found)
        return
    tier = found["priority"] or "none stored: the Priority Service or the default decides"
    print_fields([("user", found["user_id"]), ("tier", tier), ("credits", found["balance"])])


@app.command("set-tier", epilog="Example: fairlane users set-tier ada high")
def set_tier(
    user: User,
    tier: Annotated[str, typer.Argument(help="The tier of this user's jobs from now on.")],
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Store a user's tier. Needs an admin key."""
    from fairlane.cli.tables import print_json

    path = f"/admin/users/{part(user)}"
    found = Remote(url, key, config).call("PUT", path, {"priority": tier})
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{found['user_id']}  {found['priority']}")


@app.command("add-credits", epilog="Example: fairlane users add-credits ada 20 --note invoice-7")
def add_credits(
    user: User,
    amount: Annotated[int, typer.Argument(help="Credits to add; a negative number removes them.")],
    note: Annotated[str, typer.Option(help="A note that is stored with the entry.")] = "",
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation-key",
            help="Idempotency key: the same key adds nothing again (default: a new one).",
        ),
    ] = None,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Add credits to a user's balance. Needs an admin key."""
    from fairlane.cli.tables import print_json

    wish = {"amount": amount, "operation_key": operation or os.urandom(16).hex(), "note": note}
    found = Remote(url, key, config).call("POST", f"/admin/users/{part(user)}/credits", wish)
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{found['user_id']}  {found['balance']} {found['currency']}")
