"""The command line. Commands import what they need when they run, so that help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlane.tuning import steady

app = typer.Typer(
    name="fairlane",
    help="A priority job queue and gateway for scarce AI capacity.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def prepare() -> None:
    """Whatever the command, this process only runs a queue."""
    steady()


@app.command()
def demo(
    seconds: Annotated[
        float, typer.Option(help="Stop after so many seconds; 0 = run until Ctrl-C.")
    ] = 0,
    data: Annotated[
        Path | None, typer.Option(help="Keep the ledger in this folder (default: a temporary one).")
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.1, help="How much faster than life the services are.")
    ] = 100,
) -> None:
    """An embedded queue at work: four scarce services, users of all tiers, live."""
    from fairlane.cli.demo import run

    run(seconds, data, speed)


@app.command()
def bench(
    short: Annotated[
        bool, typer.Option("--short", help="Small sizes, one run: a smoke test.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs a figure; the median counts.")] = 3,
    jobs: Annotated[int, typer.Option(min=100, help="Jobs a run.")] = 50_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="On a private PostgreSQL and Redis.")
    ] = False,
    beside: Annotated[
        bool, typer.Option("--beside-pgqueuer", help="With --cluster: measure pgqueuer, too.")
    ] = False,
) -> None:
    """Measure this machine: submits, drain, latency, claim cost, memory. Durable commits on."""
    from fairlane.cli.bench import run

    run(short, runs, jobs, as_json, cluster, beside)


@app.command()
def version() -> None:
    """Print the version."""
    from fairlane import __version__

    typer.echo(__version__)
