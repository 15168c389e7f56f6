"""`fairlane bench`: prints benchmark figures with the settings they were measured under."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import orjson
import typer
from rich.console import Console
from rich.table import Table

from fairlane import __version__
from fairlane.bench import measure
from fairlane.bench.measure import Figure

EMBEDDED = "embedded: SQLite in WAL mode, synchronous = FULL"
CLUSTER = "cluster: PostgreSQL with fsync and synchronous_commit on, and Redis, over TCP"


def run(  # noqa: PLR0913, PLR0917 - as the command has them
    short: bool,
    runs: int,
    jobs: int,
    as_json: bool,
    cluster: bool = False,
    beside: bool = False,
    http: bool = False,
    overload: bool = False,
    tasks: bool = False,
    queue_routes: bool = False,
    viewers: bool = False,
    services: Sequence[int] = (),
) -> None:
    if short:
        runs, jobs = 1, 3_000
    console = Console(stderr=True)
    figures = []
    if overload:
        runs, found = 1, _overload(short, cluster)
    elif services:
        found = _many_services(runs, services, short, cluster)
    elif viewers:
        runs, found = 1, _viewers(short)
    elif queue_routes:
        runs, found = 1, _queue_routes(short, cluster)
    elif tasks:
        found = _tasks(runs, jobs, short, cluster)
    elif http:
        found = _http(runs, jobs, short)
    else:
        found = _cluster(runs, jobs, short, beside) if cluster else _embedded(runs, jobs, short)
    for figure in found:
        console.print(f"  {figure.what}, {figure.settings}: {figure.median:,.1f} {figure.unit}")
        figures.append(figure)
    stores = CLUSTER if cluster else EMBEDDED
    if as_json:
        report = orjson.dumps(_report(figures, runs, jobs, stores), option=orjson.OPT_INDENT_2)
        sys.stdout.write(report.decode() + "\n")
    else:
        _print_table(figures, runs, jobs, stores)


def run_models(short: bool, as_json: bool, cluster: bool, called: bool) -> None:
    from fairlane.bench import models

    jobs = models.SHORT_JOBS if short else models.JOBS
    found = models.outcomes(jobs, called=called, on_cluster=cluster)
    if as_json:
        sys.stdout.write(orjson.dumps(found, option=orjson.OPT_INDENT_2, default=_named).decode())
        return
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    gpus = "a called service with two GPUs" if called else "a pull worker with one GPU"
    sys.stdout.write(
        f"{models.markdown(found)}\n{CLUSTER if cluster else EMBEDDED}; {gpus}; {jobs} jobs, the "
        f"first {models.NOT_COUNTED:.0%} not counted; one run, seed {models.SEED} · {versions}\n"
    )


def _named(value: object) -> object:
    """Named tuples as objects."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    raise TypeError(type(value).__name__)


def _http(runs: int, jobs: int, short: bool) -> Iterator[Figure]:
    from fairlane.bench.api import figures

    return figures(runs, jobs, short=short)


def _tasks(runs: int, jobs: int, short: bool, cluster: bool) -> Iterator[Figure]:
    from fairlane.bench.tasks import figures

    return figures(runs, jobs, short=short, on_cluster=cluster)


def _overload(short: bool, cluster: bool) -> Iterator[Figure]:
    from fairlane.bench.overload import figures

    return figures(short=short, on_cluster=cluster)


def _queue_routes(short: bool, cluster: bool) -> Iterator[Figure]:
    from fairlane.bench.generation import figures

    return figures(short=short, on_cluster=cluster)


def _viewers(short: bool) -> Iterator[Figure]:
    from fairlane.bench.viewers import figures

    return figures(short=short)


def _many_services(
    runs: int, services: Sequence[int], short: bool, cluster: bool
) -> Iterator[Figure]:
    from fairlane.bench.many_services import figures

    return figures(runs, services, short=short, on_cluster=cluster)


def _embedded(runs: int, jobs: int, short: bool) -> Iterator[Figure]:
    from fairlane.bench.embedded import figures

    return figures(runs, jobs, short=short)


def _cluster(runs: int, jobs: int, short: bool, beside: bool) -> Iterator[Figure]:
    try:
        from fairlane.bench.cluster import figures, has_peer
    except ImportError as error:
        raise typer.BadParameter(
            f'{error.name} is missing: pip install "fairlane[cluster]"'
        ) from error
    if beside and not has_peer():
        raise typer.BadParameter('pgqueuer is missing: pip install "pgqueuer[asyncpg]"')
    return figures(runs, jobs, short=short, beside=beside)


def _report(figures: list[Figure], runs: int, jobs: int, stores: str) -> dict[str, object]:
    return {
        "command": " ".join(["fairlane", *sys.argv[1:]]),
        "versions": _versions(),
        "jobs": jobs,
        "runs": runs,
        "stores": stores,
        "payload_bytes": len(orjson.dumps(measure.PAYLOAD)),
        "users": measure.USERS,
        "figures": [
            {
                "what": figure.what,
                "settings": figure.settings,
                "unit": figure.unit,
                "median": figure.median,
                "values": figure.values,
                "interval": figure.interval,
            }
            for figure in figures
        ],
    }


def _print_table(figures: list[Figure], runs: int, jobs: int, stores: str) -> None:
    table = Table(title=f"fairlane bench, {stores}")
    table.add_column("figure")
    table.add_column("settings")
    table.add_column("median", justify="right")
    table.add_column("all runs", justify="right", style="dim")
    for figure in figures:
        every = " ".join(f"{value:,.4g}" for value in sorted(figure.values))
        if figure.interval is not None:
            every = "95 %: {:+.1f} to {:+.1f}".format(*figure.interval)
        table.add_row(figure.what, figure.settings, f"{figure.median:,.1f} {figure.unit}", every)
    console = Console(width=120)
    console.print(table)
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    console.print(
        f"{jobs:,} no-op jobs of {len(orjson.dumps(measure.PAYLOAD))} bytes, "
        f"{measure.USERS} users, 3 tiers, fair share on, {runs} runs · {versions}"
    )


def _versions() -> dict[str, str]:
    return {
        "fairlane": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "uvloop": version("uvloop"),
        "machine": f"{platform.machine()} × {_cores()}",
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
