"""Compare the speed of this tree with an older commit: the same benchmarks, in turn.

    python -m tests.compare --base REV [--rounds 5] [--only WORDS]

Each round measures every figure once in both trees, in a process of its own, one after the other;
the order alternates. The ratio is ours to theirs, so more than 1 is faster. Run it on a machine
that does nothing else: single figures differ by tens of percent, the median of the ratios by a few.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

COMMON = """
import uvloop, tempfile
from pathlib import Path
from fairlane.bench import measure
"""
CLUSTER = """
from fairlane.bench.cluster import Bench
from fairlane.servers import Postgres, Redis
with Postgres(fsync=True) as postgres, Redis() as redis, tempfile.TemporaryDirectory() as folder:
    bench = Bench(postgres, redis, Path(folder))
    print(uvloop.run({}))
"""
HTTP = """
from fairlane.bench import http_client as client
async def run():
    async with client.server() as served:
        await client.single_submits(served.port, 500)
        return (await client.single_submits(served.port, 10_000)).rate
print(uvloop.run(run()))
"""

FIGURES = {
    "embedded drain, n = 100": (
        "print(uvloop.run(measure.drained(measure.embedded_queue, 50_000, 100, 0)))"
    ),
    "embedded drain, n = 10": (
        "print(uvloop.run(measure.drained(measure.embedded_queue, 25_000, 10, 0)))"
    ),
    "embedded batch submits, n = 100": (
        "print(uvloop.run(measure.batch_submits(measure.embedded_queue, 50_000, 100)))"
    ),
    "cluster drain, n = 100": CLUSTER.format("bench.drained(50_000, 100, 0, 1)"),
    "cluster drain, n = 10": CLUSTER.format("bench.drained(25_000, 10, 0, 1)"),
    "cluster batch submits, n = 100": CLUSTER.format(
        "measure.batch_submits(bench.queue, 50_000, 100)"
    ),
    "HTTP single submits": HTTP,
}


def measured(tree: Path, code: str) -> float:
    """Jobs a second, measured with the source of this tree."""
    found = subprocess.run(
        [sys.executable, "-c", COMMON + code],
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        cwd=tree,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(found.stdout.split()[-1])


def compare(base: Path, rounds: int, only: str) -> None:
    for name, code in FIGURES.items():
        if only not in name:
            continue
        pairs: list[tuple[float, float]] = []
        for number in range(rounds):
            if number % 2:
                ours = measured(ROOT, code)
                pairs.append((ours, measured(base, code)))
            else:
                theirs = measured(base, code)
                pairs.append((measured(ROOT, code), theirs))
        ratios = [ours / theirs for ours, theirs in pairs]
        medians = [statistics.median(side) for side in zip(*pairs, strict=True)]
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"{name:<32} ours {medians[0]:>8,.0f}/s  base {medians[1]:>8,.0f}/s  "
            f"ratio {statistics.median(ratios):.3f}  ({each})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each figure")
    parser.add_argument("--only", default="", help="only figures whose name contains this")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlane-compare-") as folder:
        tree = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), chosen.base], check=True)
        try:
            compare(tree, chosen.rounds, chosen.only)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
