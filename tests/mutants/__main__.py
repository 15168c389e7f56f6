"""Plants each fault of tests/mutants in a copy of the source and runs the test that must notice.

A mutant is killed when its test fails or hangs, and survives when its test passes: then the promise
is not really tested. It is broken when it does not fit the source or names no test that runs."""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tests.mutants import carry, witness
from tests.mutants.mutant import ROOT, BrokenMutant, Mutant, patches, read

AT_ONCE = 2
TIME_LIMIT = 60
"""Seconds for the test of one mutant."""

PASSED, FAILED = 0, 1
"""What pytest exits with when tests ran. Everything else means that they did not."""


class Verdict(StrEnum):
    KILLED = "killed"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


class Result(NamedTuple):
    name: str
    verdict: Verdict
    seconds: float
    remark: str = ""

    def __str__(self) -> str:
        first, *more = self.remark.splitlines() or [""]
        line = f"{self.verdict:<9}{self.seconds:5.1f} s  {self.name}  {first}".rstrip()
        return "\n".join([line, *(f"          {each}" for each in more)])


class Run(NamedTuple):
    """What became of a call of pytest; no code = it was still running at its time limit."""

    code: int | None
    output: str


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["carry"]:
        return carry.main(argv[1:])
    options = parser().parse_args(argv)
    mutants, broken = readable(chosen(options.only))
    if options.short:
        mutants = one_of_each_kind(mutants)[::2]
    if not mutants and not broken:
        print("no such mutant; --list shows them all", file=sys.stderr)
        return 2
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}\n    {mutant.promise}: {mutant.fault}\n    {mutant.test}")
        return 0
    results = []
    with tempfile.TemporaryDirectory(prefix="fairlane-mutants-") as folder:
        if mutants and not healthy(mutants, Path(folder)):
            return 2
        for result in itertools.chain(broken, hunt(mutants, Path(folder))):
            print(result, flush=True)
            results.append(result)
    killed = sum(result.verdict is Verdict.KILLED for result in results)
    print(f"killed {killed} / {len(results)}")
    print(f"{killed} passed, {len(results) - killed} failed")
    return 0 if killed == len(results) else 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="make mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exits with 0 if all were killed, 1 if one survived or is broken, 2 if a test\n"
        f"fails without any fault. A test hangs when it runs for more than {TIME_LIMIT} s.\n"
        "With make: make mutants ARGS='--only i07'\n"
        "After a move or rename of the source: make mutants ARGS='carry --help'",
    )
    made.add_argument(
        "--short",
        action="store_true",
        help="one of every second file of tests, and some on other stores",
    )
    made.add_argument("--only", default="", metavar="NAME", help="those whose name begins so: i07")
    made.add_argument("--list", action="store_true", help="say what there is, run nothing")
    return made


def chosen(beginning: str) -> list[Path]:
    return [path for path in patches() if path.name.startswith(beginning)]


def readable(paths: Sequence[Path]) -> tuple[list[Mutant], list[Result]]:
    """The mutants in these files, and what is to be said of files that hold none."""
    mutants, broken = [], []
    for path in paths:
        try:
            mutants.append(read(path))
        except BrokenMutant as error:
            broken.append(Result(path.stem, Verdict.BROKEN, 0, str(error)))
    return mutants, broken


def one_of_each_kind(mutants: Sequence[Mutant]) -> list[Mutant]:
    """One of each file of tests; of those that stand on servers one of each kind."""
    first: dict[str, Mutant] = {}
    for mutant in mutants:
        file = mutant.test.partition("::")[0]
        first.setdefault(file if mutant.stores == "embedded" else mutant.stores, mutant)
    return list(first.values())


# ── hunting ───────────────────────────────────────────────────────────────────────────────────


def healthy(mutants: Sequence[Mutant], folder: Path) -> bool:
    """Whether the tests pass without any fault. One that fails anyway would kill every mutant."""
    began, total = time.monotonic(), 0
    (folder / "healthy").mkdir()
    for stores in sorted({mutant.stores for mutant in mutants}):
        tests = sorted({mutant.test for mutant in mutants if mutant.stores == stores})
        limit = TIME_LIMIT * len(tests)
        run = pytest(tests, stores, ROOT / "src", folder / "healthy", limit)
        if run.code != PASSED:
            print(f"{run.output}\nThese must pass before a fault is planted.", file=sys.stderr)
            return False
        total += len(tests)
    print(f"{total} tests pass without a fault, {time.monotonic() - began:.0f} s")
    return True


def hunt(mutants: Sequence[Mutant], folder: Path) -> Iterator[Result]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for done in as_completed([pool.submit(judged, each, folder) for each in mutants]):
                yield done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def judged(mutant: Mutant, folder: Path) -> Result:
    began = time.monotonic()
    copy = folder / mutant.name
    shutil.copytree(ROOT / "src", copy / "src")
    try:
        mutant.apply(copy)
        verdict, remark = meaning(mutant, pytest([mutant.test], mutant.stores, copy / "src", copy))
    except BrokenMutant as error:
        verdict, remark = Verdict.BROKEN, str(error)
    shutil.rmtree(copy)
    return Result(mutant.name, verdict, time.monotonic() - began, remark)


def meaning(mutant: Mutant, run: Run) -> tuple[Verdict, str]:
    if run.code is None:
        return Verdict.KILLED, f"(hung for {TIME_LIMIT} s)"
    if run.code == FAILED:
        return Verdict.KILLED, ""
    if run.code == PASSED:
        return Verdict.SURVIVED, f"\n{mutant.promise}: {mutant.fault}\nunnoticed by {mutant.test}"
    return Verdict.BROKEN, f"pytest exited with {run.code}:\n{run.output}"


def pytest(
    tests: Sequence[str], stores: str, source: Path, scratch: Path, limit: float = TIME_LIMIT
) -> Run:
    """Run these tests against this source; what they leave behind goes to `scratch`."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(scratch.parent / "compiled"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "examples"),
        witness.SOURCE: str(source),
    }
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", witness.__name__, "--hypothesis-seed=0"]
    options.append(f"--stores={stores}")
    said = scratch / "said"
    with said.open("wb") as out:
        try:
            code: int | None = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    return Run(code, said.read_text("utf-8", errors="replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
