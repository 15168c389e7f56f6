"""`fairlane celery`: the balanced queues of a Celery app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlane.cli.remote import UNAVAILABLE, USAGE, stop
from fairlane.errors import StoreAway

if TYPE_CHECKING:
    from fairlane.celery.router import Balancer

app = typer.Typer(no_args_is_help=True, help="The balanced queues of a Celery app.")

App = Annotated[
    str, typer.Option("--app", "-A", help="The Celery app, as for celery -A, such as proj.celery.")
]


@app.command("loads")
def show_loads(
    name: App,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the waiting and running tasks of every queue."""
    from fairlane.celery.loads import LoadReader
    from fairlane.cli.tables import print_json, print_table

    try:
        loads = LoadReader(_balancer(name).leases).read()
    except StoreAway as error:
        stop(f"Redis does not answer: {error}", UNAVAILABLE)
    if as_json:
        print_json({queue: load._asdict() for queue, load in loads.items()})
        return
    print_table(("queue", "pending", "running"), ((queue, *load) for queue, load in loads.items()))


@app.command("queues")
def show_queues(name: App) -> None:
    """Print the names of the queues, as the option -Q of celery worker takes them."""
    options = _balancer(name).options
    typer.echo(",".join((*options.queues, options.fair_queue)))


@app.command("reset")
def reset(
    name: App,
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
) -> None:
    """Forget the loads and count again: what the broker holds now, what workers run within two
    heartbeats."""
    from fairlane.celery.reconciler import Reconciler

    try:
        Reconciler(_balancer(name)).reset(queue)
    except StoreAway as error:
        stop(f"Redis does not answer: {error}", UNAVAILABLE)
    except ValueError as error:
        stop(f"--queue: {error}", USAGE)
    typer.echo("the loads are counted again")


def _balancer(name: str) -> Balancer:
    import sys

    try:
        from celery.app.utils import find_app

        from fairlane.celery.router import balancer_of
    except ImportError:
        stop('Celery is not installed; pip install "fairlane[celery]"', USAGE)
    sys.path.insert(0, "")  # as celery -A does
    try:
        found = find_app(name)
        found.conf.task_routes  # noqa: B018 - a lazy configuration creates the router here
        return balancer_of(found)
    except (ImportError, AttributeError, LookupError) as error:
        stop(f"--app {name}: {error}", USAGE)
