"""`fairlane users`: tiers, credits and statements of users."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url, part, query

app = typer.Typer(help="Users of the key's tenant: tiers and credits.", no_args_is_help=True)

User = Annotated[str, typer.Argument(help="The user's id.")]
PAGE_ENTRIES = 200


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


@app.command("statement", epilog="Example: fairlane users statement ada --csv > ada.csv")
def print_statement(
    user: User,
    since: Annotated[
        str | None, typer.Option(help="Only entries from this time on: 2026-01-31T00:00:00Z.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only entries before this time.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the entries as CSV.")] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print a user's payments, refunds, grants and withdrawals, newest first. A client key needs
    the right act_as."""
    from fairlane.cli.tables import moment, print_json, print_table

    found = _statement(Remote(url, key, config), user, since, until)
    entries = found["entries"]
    if as_json:
        print_json(found)
    elif as_csv:
        from fairlane.api.csv_page import csv_text
        from fairlane.responses import StatementEntryResponse

        columns = tuple(StatementEntryResponse.__annotations__)
        typer.echo(csv_text(columns, entries), nl=False)
    else:
        print_table(
            ("booked", "kind", "amount", "balance", "job or key", "note"),
            (
                (
                    moment(entry["at"]),
                    entry["kind"],
                    f"{entry['amount']:+}",
                    str(entry["balance"]),
                    entry["job_id"] or entry["operation_key"],
                    entry["note"],
                )
                for entry in entries
            ),
        )
        typer.echo(f"{len(entries)} entries; balance: {found['balance']} {found['currency']}")


def _statement(remote: Remote, user: str, since: str | None, until: str | None) -> Any:
    """All pages as one response: the balance is that of the first page, and so are its newest
    entries."""
    path = f"/api/v1/users/{part(user)}/statement"
    found = remote.call("GET", f"{path}{query(since=since, until=until, limit=PAGE_ENTRIES)}")
    cursor = found["next"]
    while cursor is not None:
        wanted = query(since=since, until=until, limit=PAGE_ENTRIES, cursor=cursor)
        page = remote.call("GET", f"{path}{wanted}")
        found["entries"] += page["entries"]
        cursor = page["next"]
    return found | {"next": None}
