"""`fairlane workers`: list workers and drain them."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, ListUnlessNamed, Remote, Url, part

app = typer.Typer(cls=ListUnlessNamed, help="Workers: task types, load, and draining.")


@app.command("list")
def list_workers(
    everyone: Annotated[bool, typer.Option("--all", help="Also show dead workers.")] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List every worker and dispatcher that sent a heartbeat in the last 24 hours."""
    from fairlane.cli.tables import moment, print_json, print_table

    found = Remote(url, key, config).every("/api/v1/workers", "workers")
    if as_json:
        print_json({"workers": found})
        return
    shown = [each for each in found if everyone or each["status"] != "dead"]
    print_table(
        (
            "worker",
            "name",
            "status",
            "runs",
            "of",
            "types",
            "capabilities",
            "regions",
            "last heard",
        ),
        (
            (
                each["worker_id"],
                each["name"],
                each["status"],
                each["current_load"],
                each["capacity"],
                "any" if each["task_types"] is None else each["task_types"],
                each["capabilities"],
                each["regions"],
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
    """Drain a worker: it finishes its running tasks and takes no more. Needs an admin key."""
    from fairlane.cli.tables import print_json

    found = Remote(url, key, config).call("POST", f"/admin/workers/{part(worker)}/drain")
    if as_json:
        print_json(found)
    else:
        left = found["current_load"]
        typer.echo(f"{found['worker_id']}  {found['status']}, {left} still running")
