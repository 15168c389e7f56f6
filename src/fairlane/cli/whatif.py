"""The command `fairlane whatif` (what-if): how long users would wait with another limit."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url


def whatif(
    service: Annotated[str, typer.Argument(help="The service.")],
    limit: Annotated[int, typer.Option(min=1, help="The limit to try.")],
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the last hour of a running server with another limit, beside today's. Nothing is
    changed. Needs an admin key."""
    from fairlane.cli.tables import duration, print_json, print_table

    remote = Remote(url, key, config)
    found = remote.call("POST", "/admin/simulate", {"service": service, "limit": limit})
    if as_json:
        print_json(found)
        return
    print_table(
        ("tier", "p50 today", "p50 then", "p95 today", "p95 then", "in target", "then"),
        (
            (
                tier,
                duration(today["p50"]),
                duration(found["then"][tier]["p50"]),
                duration(today["p95"]),
                duration(found["then"][tier]["p95"]),
                _share(today["share_in_target"]),
                _share(found["then"][tier]["share_in_target"]),
            )
            for tier, today in found["today"].items()
        ),
    )
    typer.echo(
        f"{found['arrivals']:,} arrivals, {duration(found['seconds_simulated'])} simulated, "
        f"seed {found['seed']}" + (f"; {found['note']}" if found["note"] else "")
    )


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.0f} %"
