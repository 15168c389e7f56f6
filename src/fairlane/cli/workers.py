"""`fairlane workers`: who runs tasks, and who shall stop."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, ListUnlessNamed, Remote, Url, part

app = typer.Typer(cls=ListUnlessNamed, help="Workers: what they offer and run; drain them.")


@app.command("list")
def list_workers(
    everyone: Annotated[bool, typer.Option("--all", help="Also those that are dead.")] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Every worker and dispatcher that was heard of in the last day."""
    from fairlane.cli.tables import moment, print_json, print_table

    found = Remote(url, key, config).every("/api/v1/workers", "workers")
    if as_json:
        print_json({"workers": found})
        return
    shown = [each for each in found if everyone or each["status"] != "dead"]
    print_table(
        ("worker", "status", "runs", "of", "types", "capabilities", "region", "last heard"),
        (
            (
                each["worker_id"],
                each["status"],
                each["current_load"],
                each["capacity"],
                "any" if each["task_types"] is None else each["task_types"],
                each["capabilities"],
                each["region"],
                moment(each["last_heartbeat"]),
            )
            for each in shown
        ),
    )
    dead = len(found) - len(shown)
    typer.echo(f"{len(shown)} shown" + (f", {dead} dead ones with --all" if dead else ""))


@app.command("drain", epilog="Example: fairlane workers drain w-7f3a    (ids: fairlane workers)")
def drain_worker(
    worker: Annotated[str, typer.Argument(help="The worker's id.")],
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let a worker finish what it runs and take nothing more. Needs an admin key."""
    from fairlane.cli.tables import print_json

    found = Remote(url, key, config).call("POST", f"/admin/workers/{part(worker)}/drain")
    if as_json:
        print_json(found)
    else:
        left = found["current_load"]
        typer.echo(f"{found['worker_id']}  {found['status']}, {left} still running")
