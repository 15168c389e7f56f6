"""Memory benchmark of an embedded queue: empty, and per waiting job. It runs in a separate process
that loads nothing else: `python -m fairlane.bench.memory`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from fairlane.compose import embedded
from fairlane.engine import Engine
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.presets import tasks

FEW, MANY = 20_000, 50_000
"""Waiting jobs at the two measurements whose difference counts. The ledger's cache is full at
both."""

USERS, AT_ONCE = 100, 500


class Taken(NamedTuple):
    """Memory of an empty queue in megabytes, and bytes per waiting job."""

    empty: float
    job: float


def taken() -> Taken:
    done = subprocess.run(  # noqa: S603 - our own interpreter, our own code
        [sys.executable, "-m", __spec__.name], capture_output=True, text=True, check=True
    )
    empty, job = done.stdout.split()
    return Taken(float(empty), float(job))


def megabytes(process: int | str) -> float:
    """Resident memory of a process in megabytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def _look() -> Taken:
    tiers = tasks().tiers
    catalog = Catalog(tiers, [Service("noop")])
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        async with await embedded(catalog, Path(folder) / "ledger.db") as engine:
            empty = megabytes("self")
            await _submit(engine, tiers.names, 0, FEW)
            few = megabytes("self")
            await _submit(engine, tiers.names, FEW, MANY)
            return Taken(empty, (megabytes("self") - few) * 1e6 / (MANY - FEW))


async def _submit(engine: Engine, tiers: tuple[str, ...], first: int, end: int) -> None:
    """Submits one job per call."""
    for start in range(first, end, AT_ONCE):
        jobs = [
            NewJob(
                "noop", {"text": "x" * 187}, user=f"user-{i % USERS}", tier=tiers[i % len(tiers)]
            )
            for i in range(start, start + AT_ONCE)
        ]
        await asyncio.gather(*map(engine.submit, jobs))


if __name__ == "__main__":
    print(*asyncio.run(_look()))  # noqa: T201 - read by the parent process
