"""Plants each fault of tests/mutants in a copy of the source and runs the test that must notice.

A mutant is killed when its test fails or hangs, and survives when its test passes: then the promise
is not really tested. It is broken when it does not fit the source or names no test that runs."""

from __future__ import annotations

import argparse
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

from tests.mutants import witness
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
    options = parser().parse_args(argv)
    mutants, results = readable(chosen(options.only))
    if options.short:
        mutants = one_of_each_file(mutants)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}\n    {mutant.promise}: {mutant.fault}\n    {mutant.test}")
    if not mutants and not results:
        print("no such mutant; --list shows them all", file=sys.stderr)
        return 2
    if not options.list:
        for result in results:
            print(result, flush=True)
        if mutants and not healthy(mutants):
            return 2
        for result in hunt(mutants):
            print(result, flush=True)
            results.append(result)
        report(results)
    return 0 if all(result.verdict is Verdict.KILLED for result in results) else 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="make mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exits with 0 if all were killed, 1 if one survived or is broken, 2 if a test\n"
        f"fails without any fault. A test hangs when it runs for more than {TIME_LIMIT} s.\n"
        "With make: make mutants ARGS='--only i07'",
    )
    made.add_argument("--short", action="store_true", help="one mutant of each file of tests")
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


def one_of_each_file(mutants: Sequence[Mutant]) -> list[Mutant]:
    first: dict[str, Mutant] = {}
    for mutant in mutants:
        first.setdefault(mutant.test.partition("::")[0], mutant)
    return list(first.values())


# ── hunting ───────────────────────────────────────────────────────────────────────────────────


def healthy(mutants: Sequence[Mutant]) -> bool:
    """Whether the tests pass without any fault. One that fails anyway would kill every mutant."""
    began = time.monotonic()
    tests = sorted({mutant.test for mutant in mutants})
    run = pytest(tests, ROOT, time_limit=TIME_LIMIT * len(tests))
    if run.code == PASSED:
        print(f"{len(tests)} tests pass without a fault, {time.monotonic() - began:.0f} s")
        return True
    print(f"{run.output}\nThese must pass before a fault is planted.", file=sys.stderr)
    return False


def hunt(mutants: Sequence[Mutant]) -> Iterator[Result]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for done in as_completed([pool.submit(judged, mutant) for mutant in mutants]):
                yield done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def judged(mutant: Mutant) -> Result:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fairlane-mutant-") as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info"))
        try:
            mutant.apply(copy)
            verdict, remark = meaning(mutant, pytest([mutant.test], copy))
        except BrokenMutant as error:
            verdict, remark = Verdict.BROKEN, str(error)
    return Result(mutant.name, verdict, time.monotonic() - began, remark)


def meaning(mutant: Mutant, run: Run) -> tuple[Verdict, str]:
    if run.code is None:
        return Verdict.KILLED, f"(hung for {TIME_LIMIT} s)"
    if run.code == FAILED:
        return Verdict.KILLED, ""
    if run.code == PASSED:
        return Verdict.SURVIVED, f"\n{mutant.promise}: {mutant.fault}\nunnoticed by {mutant.test}"
    return Verdict.BROKEN, f"pytest exited with {run.code}:\n{run.output}"


def pytest(tests: Sequence[str], root: Path, time_limit: float = TIME_LIMIT) -> Run:
    """Run these tests against the source below `root`."""
    with tempfile.TemporaryDirectory(prefix="fairlane-hunt-") as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": str(root / "src"),
            "HYPOTHESIS_STORAGE_DIRECTORY": folder,
            witness.SOURCE: str(root / "src"),
        }
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", witness.__name__]
        command = [sys.executable, "-m", "pytest", *options, "--hypothesis-seed=0", *tests]
        said = Path(folder, "said")
        with said.open("wb") as out:
            try:
                code: int | None = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=time_limit,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = None
        return Run(code, said.read_text("utf-8", errors="replace"))


def report(results: Sequence[Result]) -> None:
    killed = sum(result.verdict is Verdict.KILLED for result in results)
    print(f"killed {killed} / {len(results)}")
    print(f"{killed} passed, {len(results) - killed} failed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
