"""`make soak ARGS="--minutes 60 --cluster"`: constant load at 70 % of the measured capacity.
Memory, descriptors and sizes are sampled meanwhile; the verdict says what grew."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import uvloop

from tests.soak.load import SoakLoad
from tests.soak.report import Verdict, verdict
from tests.soak.samples import Sample
from tests.soak.system import SoakSystem, soak_system

LOAD = 0.7
"""Share of the measured capacity."""

CAPACITY_SECONDS = 20.0
SAMPLES = 360
LONGEST_RETENTION_SECONDS = 300.0
AFTERWARDS_SECONDS = 60.0
"""Beyond the retention, until everything that has ended must be deleted."""

UNCOUNTED = frozenset({"meta", "workers"})
"""Tables with a row for each setting and each worker that runs."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=1.0, help="of constant load")
    parser.add_argument("--cluster", action="store_true", help="PostgreSQL, Redis, five processes")
    parser.add_argument(
        "--rate", type=float, help="jobs a second, instead of 70 %% of the capacity"
    )
    parser.add_argument("--keep", type=Path, help="folder for the samples and the logs")
    asked = parser.parse_args(arguments)
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="fairlane-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    seconds = asked.minutes * 60
    say(f"{'cluster' if asked.cluster else 'embedded'}, samples and logs in {folder}")
    found = uvloop.run(soak(folder, seconds, asked.rate, cluster=asked.cluster))
    print(*found.lines, sep="\n", flush=True)
    return 0 if found.passed else 1


async def soak(folder: Path, seconds: float, rate: float | None, *, cluster: bool) -> Verdict:
    retention = min(LONGEST_RETENTION_SECONDS, seconds / 6)
    async with (
        soak_system(folder, cluster=cluster, retention=retention) as system,
        SoakLoad(system.urls) as load,
    ):
        rows_before = await system.stores.rows()
        rate = rate or LOAD * await capacity(system, load)
        accepted, used = load.accepted, system.cpu()
        say(f"{rate:.1f} jobs/s for {seconds:g} s; what has ended is deleted after {retention:g} s")
        samples = await sampled(system, load, rate, seconds, folder / "samples.jsonl")
        accepted, used = load.accepted - accepted, system.cpu() - used
        say(
            f"{accepted} jobs accepted; the processes and their servers used "
            f"{used / seconds:.2f} cores, {used / max(accepted, 1) * 1000:.2f} ms a job"
        )
        left = await left_behind(system, rows_before, retention)
        answers = dict(load.answers)
        ended = await system.end()
    return verdict(samples, answers=answers, left=left, ended=ended)


async def capacity(system: SoakSystem, load: SoakLoad) -> float:
    """How many jobs end in a second when jobs always wait."""
    used = system.cpu()
    found = await load.as_fast_as_possible(CAPACITY_SECONDS, system.stores.live_jobs)
    cores = (system.cpu() - used) / CAPACITY_SECONDS
    say(f"capacity {found:.0f} jobs/s with {cores:.2f} cores")
    return found


async def sampled(
    system: SoakSystem, load: SoakLoad, rate: float, seconds: float, file: Path
) -> list[Sample]:
    """The samples that were taken while the load lasted."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    running = asyncio.create_task(load.constant(rate, seconds))
    samples: list[Sample] = []
    with file.open("w", encoding="utf-8") as lines:
        while not running.done():
            samples.append(await system.sample(loop.time() - begin))
            lines.write(json.dumps(asdict(samples[-1])) + "\n")
            lines.flush()
            await asyncio.wait([running], timeout=max(1.0, seconds / SAMPLES))
    await running
    return samples


async def left_behind(
    system: SoakSystem, before: dict[str, int], retention: float
) -> dict[str, int]:
    """Rows that are more than before the load, when everything that has ended must be deleted."""
    loop = asyncio.get_running_loop()
    until = loop.time() + retention + AFTERWARDS_SECONDS
    while True:
        left = dict(more_rows(before, await system.stores.rows()))
        if not left or loop.time() > until:
            return left
        await asyncio.sleep(1)


def more_rows(before: dict[str, int], now: dict[str, int]) -> Iterator[tuple[str, int]]:
    for table, number in now.items():
        if table not in UNCOUNTED and number > before.get(table, 0):
            yield table, number - before.get(table, 0)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
