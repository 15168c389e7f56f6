"""All tests, at once on two cores: what needs no server in two processes, HTTP in one of them, and
beside them the same promises on the stores of a cluster, which mostly waits for answers. `stores`
runs what is left of the promises on a cluster, all of them on PostgreSQL alone, and the longer
searches on one file. Processes that are killed, and HTTP over a cluster, are chaos
(`tests/cluster`); pages in a browser are `tests/browser`. Any other arguments go to one pytest
instead."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

PYTEST = (sys.executable, "-m", "pytest", "-q")
EMBEDDED = ("--stores=embedded", "-m", "not long")
HTTP = (
    "tests/api",
    "tests/dispatch",
    "tests/gateway",
    "tests/webhooks",
    "tests/worker",
)
CLUSTER = ("--stores=cluster", "-p", "no:cacheprovider")
POSTGRES = ("--stores=postgres", "-p", "no:cacheprovider")
GENERAL = ("--stores=general", "-p", "no:cacheprovider")
HOT = ("admission", "attempts", "durability", "endings", "first", "limits", "pipelines")
"""The files of the conformance suite about what PostgreSQL has shortcuts for. They run without them
too."""

SLOWER = ("test_a*.py", "test_c*.py", "test_e*.py", "test_i*.py", "test_l*.py", "test_m*.py")
"""The files of the conformance suite that take most of its time."""

LIGHT = (
    "tests/cluster/test_several_engines.py",
    "tests/cluster/test_many_writers.py",
    "tests/cluster/test_lock_order.py",
)
"""Of the tests with servers and processes, those that kill none."""


def main(further: list[str]) -> int:
    files = sorted(Path("tests/conformance").glob("test_*.py"))
    slower = [str(file) for file in files if any(file.match(name) for name in SLOWER)]
    others = [str(file) for file in files if str(file) not in slower]
    if further == ["stores"]:
        return _run(
            (*POSTGRES, "tests/conformance"),
            (*CLUSTER, *slower),
            (*GENERAL, *(f"tests/conformance/test_{name}.py" for name in HOT)),
            ("--stores=embedded", "-m", "long", "tests/conformance", "tests/crash"),
        )
    if further:
        return subprocess.call([*PYTEST, *further])
    elsewhere = ("tests/browser", "tests/cluster", "tests/index", *HTTP)
    return _run(
        (*EMBEDDED, "tests", *(f"--ignore={folder}" for folder in elsewhere)),
        (*EMBEDDED, "-p", "no:cacheprovider", *HTTP),
        (*CLUSTER, "tests/index", *LIGHT, *others),
    )


def _run(*runs: tuple[str, ...]) -> int:
    """All of them at once; what the first one says is seen as it says it."""
    first, *others = runs
    with ExitStack() as stack:
        beside = [(_start(stack, *run), run[0]) for run in others]
        codes = [subprocess.call([*PYTEST, *first])]
        for (process, said), stores in beside:
            codes.append(process.wait())
            said.seek(0)
            print(f"── {stores} ──", said.read().decode(), sep="\n", flush=True)
    return max(codes, key=abs)


def _start(stack: ExitStack, *arguments: str) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    said: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is one
    process = subprocess.Popen([*PYTEST, *arguments], stdout=said, stderr=subprocess.STDOUT)
    stack.callback(process.terminate)
    return process, said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
