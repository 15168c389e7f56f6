"""`fairlane keys`: API keys. Over HTTP if a server is named, else directly in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, ListUnlessNamed, Remote, given, part

if TYPE_CHECKING:
    from fairlane.responses import NewKeyResponse

app = typer.Typer(cls=ListUnlessNamed, help="API keys: create, list and revoke them.")

DAY_SECONDS = 86_400
ROLES = ("client", "read", "worker", "admin")

KeysUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="FAIRLANE_URL",
        help="The server; needs an admin key (default: work on the ledger of the settings).",
    ),
]


@app.command(
    "create",
    epilog="""Examples: fairlane keys create --role admin    (the first key)

fairlane keys create --role client --tenant shop --url https://queue.example""",
)
def create_key(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    role: Annotated[str, typer.Option(help="The role: client, read, worker or admin.")] = "client",
    tenant: Annotated[str, typer.Option(help="The tenant that the key belongs to.")] = "default",
    name: Annotated[str, typer.Option(help="A name for the list of keys.")] = "",
    act_as: Annotated[
        bool | None,
        typer.Option(help="The key may name any user (default: yes for client and admin)."),
    ] = None,
    set_priority: Annotated[
        bool, typer.Option(help="The key may choose the tier of a job.")
    ] = False,
    days: Annotated[
        float | None, typer.Option(help="Days until the key expires (default: never).")
    ] = None,
    url: KeysUrl = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it. It cannot be shown again."""
    from fairlane.cli import configure
    from fairlane.cli.tables import print_json
    from fairlane.model.setting_bounds import MAX_SECONDS

    most = MAX_SECONDS // DAY_SECONDS
    if days is not None and not 0 < days <= most:
        raise typer.BadParameter(f"--days must be above 0 and at most {most}, not {days:g}")
    if role not in ROLES:
        typer.echo(f'unknown role "{role}"; known: {", ".join(ROLES)}', err=True)
        raise typer.Exit(configure.BAD_SETTINGS)
    acts = role in ("client", "admin") if act_as is None else act_as
    wish = {"role": role, "tenant": tenant, "name": name, "act_as": acts}
    wish["set_priority"] = set_priority
    if url is not None:
        until = None if days is None else _in_days(days)
        sent = given(**wish, expires_at=until)
        made = Remote(url, key, config).call("POST", "/admin/keys", sent)
    else:
        made = _created(configure.settings(config), wish, days)
    if as_json:
        print_json(made)
        return
    typer.echo(made["key"])
    typer.echo("save this key now: only its hash is stored, it cannot be shown again", err=True)


@app.command("list")
def list_keys(
    url: KeysUrl = None, key: ApiKey = None, config: Config = None, as_json: AsJson = False
) -> None:
    """List every key, also expired and revoked ones, without secrets."""
    from fairlane.cli import configure
    from fairlane.cli.tables import moment, print_json, print_table

    if url is not None:
        keys = Remote(url, key, config).every("/admin/keys", "keys")
    else:
        from fairlane.cli.ledger_keys import listed

        keys = listed(configure.settings(config))
    if as_json:
        print_json({"keys": keys})
        return
    now = _in_days(0)
    print_table(
        ("id", "name", "tenant", "role", "rights", "created", "expires", "state"),
        (
            (
                each["id"],
                each["name"],
                each["tenant"],
                each["role"],
                [right for right in ("act_as", "set_priority") if each[right]],
                moment(each["created_at"]),
                moment(each["expires_at"]),
                _state(each, now),
            )
            for each in keys
        ),
    )


@app.command("revoke")
def revoke_key(
    name: Annotated[
        str, typer.Argument(metavar="KEY", help="The key's id: its part before the dot.")
    ],
    url: KeysUrl = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key. Every server refuses it within 5 seconds."""
    from fairlane.cli import configure
    from fairlane.cli.remote import stop
    from fairlane.cli.tables import print_json

    revoked: Any
    if url is not None:
        revoked = Remote(url, key, config).call("DELETE", f"/admin/keys/{part(name)}")
    else:
        from fairlane.cli.ledger_keys import revoke

        revoked = revoke(configure.settings(config), name)
    if revoked is None:
        stop(f'there is no key "{name}"; to list them: fairlane keys list')
    if as_json:
        print_json(revoked)
    else:
        typer.echo(f"revoked {revoked['id']}; every server refuses it within 5 seconds")


def _created(settings: Any, wish: dict[str, Any], days: float | None) -> NewKeyResponse:
    from fairlane.cli.ledger_keys import create
    from fairlane.model.key import Key, Role

    key = Key(
        "",
        wish["tenant"],
        Role(wish["role"]),
        "",
        wish["name"],
        wish["act_as"],
        wish["set_priority"],
    )
    return create(settings, key, days)


def _in_days(days: float) -> str:
    from fairlane.api.schemas.timestamps import iso
    from fairlane.clock import SystemClock, seconds

    return iso(SystemClock().now() + seconds(days * DAY_SECONDS))


def _state(key: dict[str, Any], now: str) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    return "expired" if key["expires_at"] is not None and key["expires_at"] <= now else "valid"
