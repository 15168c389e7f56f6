"""`fairlane jobs skip`: the price of a place at the front, and the skip itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url, part


def skip_job(
    job: Annotated[str, typer.Argument(help="The job's id.")],
    quote: Annotated[bool, typer.Option("--quote", help="Only show the price.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Pay credits to move a waiting job to the front. It shows the price and asks first."""
    from fairlane.cli.tables import print_json

    remote, path = Remote(url, key, config), f"/api/v1/jobs/{part(job)}/skip"
    offer = remote.call("GET", path)
    if quote and as_json:
        print_json(offer)
        return
    if not as_json:
        typer.echo(_offered(offer))
    if quote:
        return
    if not yes:
        typer.confirm("Skip to the front?", abort=True)
    paid = remote.call("POST", path, {"max_price": offer["price"]})
    if as_json:
        print_json(paid)
    else:
        typer.echo(f"{paid['job_id']} is at the front; balance {paid['balance']}")


def _offered(offer: dict[str, Any]) -> str:
    from fairlane.cli.tables import duration

    saved = offer["seconds_saved"]
    saves = (
        f"saves {duration(saved['p50'])} to {duration(saved['p90'])}"
        if saved
        else "saves nothing now"
    )
    return f"{offer['price']} {offer['currency']} ({saves}; balance {offer['balance']})"
