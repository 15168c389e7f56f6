"""`fairlane bench`: figures with the settings they were taken under."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from fairlane import __version__
from fairlane.cli import measure
from fairlane.cli.measure import Figure

LIMITED = 1_000


def run(short: bool, runs: int, jobs: int, as_json: bool, *, http: bool) -> None:
    if short:
        runs, jobs = 1, 3_000
    console = Console(stderr=True)
    figures = []

    def tell(figure: Figure) -> None:
        console.print(f"  {figure.what}, {figure.settings}: {figure.median:,.1f} {figure.unit}")
        figures.append(figure)

    if http:
        jobs = min(jobs, 10_000)
        uvloop.run(_tell_http(runs, jobs, tell, short=short))
    else:
        for figure in _figures(runs, jobs, short=short):
            tell(figure)
    if as_json:
        sys.stdout.write(
            orjson.dumps(_report(figures, runs, jobs), option=orjson.OPT_INDENT_2).decode() + "\n"
        )
    else:
        _print_table(figures, runs, jobs)


async def _tell_http(runs: int, jobs: int, tell: Callable[[Figure], None], *, short: bool) -> None:
    from fairlane.cli import bench_http

    async for figure in bench_http.figures(runs, jobs, short=short):
        tell(figure)


def _figures(runs: int, jobs: int, *, short: bool) -> Iterator[Figure]:
    for n in (100, 1000):
        values = measure.repeat(runs, partial(measure.batch_submits, jobs, n))
        yield Figure("batch submits", f"n = {n}, {measure.CALLERS} callers", "jobs/s", values)
    few = max(200, jobs // 50)
    for callers, number in ((1, few), (50, jobs // 4)):
        values = measure.repeat(runs, partial(measure.single_submits, number, callers))
        yield Figure("single submits", f"n = 1, {callers} callers", "jobs/s", values)
    for limit in (0, LIMITED):
        for n, number in ((1, few), (10, jobs // 2), (100, jobs)):
            values = measure.repeat(runs, partial(measure.drained, number, n, limit))
            pool = f"pool of {limit}" if limit else "no limited pool"
            yield Figure("drained", f"n = {n}, {measure.LANES} lanes, {pool}", "jobs/s", values)
    yield from _latencies(runs, few)
    for n in (1, 10, 100):
        for waiting in (1_000, 100_000) if short else (1_000, 100_000, 1_000_000):
            rounds = max(5, min(2_000, waiting // 2) // n)
            values = measure.repeat(runs, partial(measure.claim_cost, waiting, n, rounds))
            yield Figure("claim cost", f"n = {n}, {waiting:,} waiting", "µs/job", values)
    yield Figure(
        "idle memory", "empty queue", "MB", [measure.idle_megabytes() for _ in range(runs)]
    )


def _latencies(runs: int, jobs: int) -> Iterator[Figure]:
    found = [uvloop.run(measure.latencies(jobs)) for _ in range(runs)]
    yield Figure("submit → start", "n = 1, idle worker, p50", "ms", [p50 for p50, _ in found])
    yield Figure("submit → start", "n = 1, idle worker, p99", "ms", [p99 for _, p99 in found])


def _report(figures: list[Figure], runs: int, jobs: int) -> dict[str, object]:
    return {
        "command": " ".join(["fairlane", *sys.argv[1:]]),
        "versions": _versions(),
        "jobs": jobs,
        "runs": runs,
        "durability": "WAL, synchronous=FULL",
        "payload_bytes": len(orjson.dumps(measure.PAYLOAD)),
        "users": measure.USERS,
        "figures": [
            {
                "what": figure.what,
                "settings": figure.settings,
                "unit": figure.unit,
                "median": figure.median,
                "values": figure.values,
            }
            for figure in figures
        ],
    }


def _print_table(figures: list[Figure], runs: int, jobs: int) -> None:
    table = Table(title="fairlane bench, embedded (SQLite WAL, synchronous=FULL)")
    table.add_column("figure")
    table.add_column("settings")
    table.add_column("median", justify="right")
    table.add_column("all runs", justify="right", style="dim")
    for figure in figures:
        every = " ".join(f"{value:,.4g}" for value in sorted(figure.values))
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
