"""The commands that change limits of services and providers: their options, and the request to a
running server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from fairlane.cli.remote import Remote, part

Limit = Annotated[
    int | None, typer.Option(min=0, help="Concurrency limit: attempts at the same time.")
]
Rate = Annotated[int | None, typer.Option(min=0, help="Rate limit: attempts started per minute.")]


def change_limits(
    remote: Remote,
    kind: Literal["services", "providers"],
    name: str,
    wish: dict[str, Any],
    as_json: bool,
) -> None:
    """Changes a service or provider, and prints it as it is now."""
    from fairlane.cli.tables import print_fields, print_json

    found = remote.call("PUT", f"/admin/{kind}/{part(name)}", wish)
    if as_json:
        print_json(found)
    else:
        print_fields((field, found[field]) for field in found if field != "regions")
