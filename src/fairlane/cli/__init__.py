"""The command line. Commands import what they need when they run, so that help is instant."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="fairlane",
    help="A priority job queue and gateway for scarce AI capacity.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def steady() -> None:
    """What a queue makes lives long, and hardly any of it in cycles: look for them less often. Two
    threads share the work: let them take turns sooner."""
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(0.0005)


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
) -> None:
    """Measure this machine: submits, drain, latency, claim cost, memory. Durable commits on."""
    from fairlane.cli.bench import run

    run(short, runs, jobs, as_json)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("fairlane.toml"),
    preset: Annotated[
        str, typer.Option(help="What to start from: tasks, gateway, generation or regions.")
    ] = "tasks",
) -> None:
    """Write settings to start from, with comments."""
    from fairlane.cli import configure

    configure.init(preset, path)


@app.command()
def check(
    path: Annotated[
        Path | None, typer.Argument(help="The file to read (default: fairlane.toml, if any).")
    ] = None,
) -> None:
    """Explain the settings in plain words, or name every mistake in them."""
    from fairlane.cli import configure

    configure.check(path)


@app.command()
def version() -> None:
    """Print the version."""
    from fairlane import __version__

    typer.echo(__version__)
