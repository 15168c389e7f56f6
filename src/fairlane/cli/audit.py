"""`fairlane audit`: the latest administrative changes."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url, query


def audit(
    limit: Annotated[int, typer.Option(min=1, max=200, help="Changes to show, at most.")] = 50,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the latest administrative changes and the keys that made them. Needs an admin key."""
    from fairlane.cli.tables import moment, print_json, print_table

    found = Remote(url, key, config).call("GET", f"/admin/audit{query(limit=limit)}")
    if as_json:
        print_json(found)
        return
    print_table(
        ("at", "actor", "action", "target", "before", "after"),
        (
            (
                moment(each["at"]),
                each["actor"],
                each["action"],
                each["target"],
                each["before"],
                each["after"],
            )
            for each in found["changes"]
        ),
    )
