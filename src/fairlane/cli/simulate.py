"""`fairlane simulate`: how long users would have waited with these settings."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fairlane.simulate.options import SimulationOptions
    from fairlane.simulate.report import Report
    from fairlane.simulate.scenario import Scenario

RUN = "run"


class RunUnlessNamed(TyperGroup):
    """`fairlane simulate trace.csv` is `fairlane simulate run trace.csv`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=RunUnlessNamed,
    help="Simulate how long users would have waited: the engine's order of service, virtual time.",
)

Trace = Annotated[
    Path | None,
    typer.Argument(help="A trace: CSV or JSON lines, also gzipped (default: a generated one)."),
]
Config = Annotated[
    Path | None, typer.Option(help="The settings file (default: fairlane.toml, if any).")
]
Preset = Annotated[
    str,
    typer.Option(help="The preset if there is no file: tasks, gateway, generation or regions."),
]
Workers = Annotated[
    int, typer.Option(min=0, help="Workers of each service that has no limit of its own.")
]
Load = Annotated[
    float,
    typer.Option(
        min=0, help="Scale time until the busiest service has this utilisation, such as 0.9."
    ),
]
Traffic = Annotated[
    float, typer.Option(min=0, help="Multiply the traffic of the trace by this, such as 1.5.")
]
ModelLoad = Annotated[
    str, typer.Option(help="Seconds to load a model, or a JSON list of seconds to draw from.")
]
Service = Annotated[str | None, typer.Option(help="Run all jobs of the trace on this service.")]
Jobs = Annotated[int, typer.Option(min=10, help="Jobs to generate without a trace.")]
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command(RUN)
def run(  # noqa: PLR0913 - each has a default that fits
    trace: Trace = None,
    *,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Also simulate this change, such as services.image_gen.limit=2; repeatable."
        ),
    ] = None,
    config: Config = None,
    preset: Preset = "tasks",
    workers: Workers = 0,
    load: Load = 0,
    traffic: Traffic = 0,
    model_load: ModelLoad = "",
    service: Service = None,
    jobs: Jobs = 10_000,
    seed: Seed = 1,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write an HTML page with charts to this file.")
    ] = None,
) -> None:
    """Simulate a workload with the settings, and with changes to them."""
    from rich.console import Console

    from fairlane.simulate.html_report import page
    from fairlane.simulate.options import SimulationOptions
    from fairlane.simulate.text_report import show

    ask = SimulationOptions(
        trace, config, preset, workers, load, traffic, model_load, service, jobs, seed
    )
    asked = _questions(ask, what_if or ())
    reports = _answers([(each.name, each, "fairlane") for each in asked])
    if html is not None:
        html.write_text(page("Who would have waited how long", _origin(asked[0], seed), reports))
        typer.echo(f"wrote {html}", err=True)
    if as_json:
        _print_json(asked[0], seed, reports)
    else:
        show(reports, Console(width=120))
        typer.echo(_origin(asked[0], seed))


@app.command()
def compare(  # noqa: PLR0913 - each has a default that fits
    trace: Trace = None,
    *,
    config: Config = None,
    preset: Preset = "tasks",
    workers: Workers = 0,
    load: Load = 0,
    traffic: Traffic = 0,
    model_load: ModelLoad = "",
    service: Service = None,
    jobs: Jobs = 10_000,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Compare orders of service on the same workload."""
    from fairlane.simulate.baselines import ORDERS
    from fairlane.simulate.options import SimulationOptions

    ask = SimulationOptions(
        trace, config, preset, workers, load, traffic, model_load, service, jobs, seed
    )
    (asked,) = _questions(ask)
    _print_league(asked, seed, _answers([(name, asked, name) for name in ORDERS]), as_json)


@app.command()
def ablate(  # noqa: PLR0913 - each has a default that fits
    trace: Trace = None,
    *,
    config: Config = None,
    preset: Preset = "tasks",
    workers: Workers = 0,
    load: Load = 0,
    traffic: Traffic = 0,
    model_load: ModelLoad = "",
    service: Service = None,
    jobs: Jobs = 10_000,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Simulate the same workload with one rule of the order of service off at a time."""
    from fairlane.simulate.ablation import RULES, switched
    from fairlane.simulate.options import SimulationOptions

    ask = SimulationOptions(
        trace, config, preset, workers, load, traffic, model_load, service, jobs, seed
    )
    (asked,) = _questions(ask)
    several = [(rule, switched(asked, rule), "fairlane") for rule in RULES]
    _print_league(asked, seed, _answers(several), as_json)


class What(StrEnum):
    FLOORS = "floors"
    LEAGUE = "league"
    ABLATION = "ablation"


@app.command()
def figures(
    what: Annotated[What, typer.Argument(help="The table to print.")] = What.FLOORS,
    traces: Annotated[
        Path, typer.Option(help="A folder of recorded traces; without it, generated ones.")
    ] = Path("../shared/traces"),
    seed: Seed = 1,
    short: Annotated[bool, typer.Option("--short", help="Run a smoke test.")] = False,
) -> None:
    """Compute the figures of the documentation, each with its minimum, or one of its tables."""
    from rich.console import Console

    from fairlane.simulate.figures import SHORT_RUN_JOBS, table
    from fairlane.simulate.figures import figures as measured
    from fairlane.simulate.markdown_tables import ablation, league

    folder, few = traces if traces.is_dir() else None, SHORT_RUN_JOBS if short else None
    if what is What.FLOORS:
        Console(width=120).print(table(measured(folder, seed, few)))
        return
    for line in (league if what is What.LEAGUE else ablation)(folder, seed, few):
        typer.echo(line)


# --- running scenarios and printing reports ------------------------------------------------------
def _questions(ask: SimulationOptions, what_ifs: Sequence[str] = ()) -> list[Scenario]:
    import os

    from fairlane.cli.configure import BAD_SETTINGS, known_preset
    from fairlane.config.setting_errors import BadSettings
    from fairlane.errors import FairlaneError
    from fairlane.simulate.options import questions

    known_preset(ask.preset)
    try:
        return questions(ask, what_ifs, os.environ)
    except BadSettings as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(BAD_SETTINGS) from None
    except FairlaneError as error:
        typer.echo(f"fairlane: {error}", err=True)
        raise typer.Exit(1) from None


def _answers(several: Sequence[tuple[str, Scenario, str]]) -> list[tuple[str, Report]]:
    """Runs the scenarios, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    found = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for name, question, order in several:
            bar = progress.add_task(name, total=len(question.workload.arrivals))
            report = question.answer(order, partial(_advance, progress, bar))
            progress.remove_task(bar)
            found.append((name, report))
    return found


def _advance(progress: Progress, bar: TaskID, done: int) -> None:
    progress.update(bar, completed=done)


def _origin(asked: Scenario, seed: int) -> str:
    given = asked.workload
    hours = given.span / 3_600_000_000
    return f"{len(given.arrivals):,} jobs in {hours:.1f} h, {given.source}, seed {seed}"


def _print_league(
    asked: Scenario, seed: int, reports: list[tuple[str, Report]], as_json: bool
) -> None:
    from rich.console import Console

    from fairlane.simulate.text_report import league

    if as_json:
        _print_json(asked, seed, reports)
    else:
        league(reports, Console(width=140), _origin(asked, seed))


def _print_json(asked: Scenario, seed: int, reports: list[tuple[str, Report]]) -> None:
    import dataclasses

    import orjson

    answer = {
        "source": asked.workload.source,
        "seed": seed,
        "reports": {name: dataclasses.asdict(report) for name, report in reports},
    }
    typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
