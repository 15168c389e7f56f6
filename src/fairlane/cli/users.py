"""`fairlane users`: their tiers and credits."""

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
    """The tier that is stored for a user, and the balance. Needs an admin key."""
    from fairlane.cli.tables import print_fields, print_json

    found = Remote(url, key, config).call("GET", f"/admin/users/{part(user)}")
    if as_json:
        print_json(found)
        return
    tier = found["priority"] or "none of their own: the default, or what the Priority Service says"
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
    """Store the tier of a user. Needs an admin key."""
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
    amount: Annotated[int, typer.Argument(help="How many; below 0 takes them back.")],
    note: Annotated[str, typer.Option(help="For the books.")] = "",
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation-key", help="The same key again gives nothing (default: a new one)."
        ),
    ] = None,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Give credits to a user, once. Needs an admin key."""
    from fairlane.cli.tables import print_json

    wish = {"amount": amount, "operation_key": operation or os.urandom(16).hex(), "note": note}
    found = Remote(url, key, config).call("POST", f"/admin/users/{part(user)}/credits", wish)
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{found['user_id']}  {found['balance']} {found['currency']}")
