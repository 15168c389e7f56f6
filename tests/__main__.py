"""All tests, at once on two cores: what needs no server in one process, and beside it the same
promises on the stores of a cluster, which mostly waits for answers. Processes that are killed, and
HTTP over a cluster, have a stage of their own in `.ci/run`. Further arguments go to one pytest
instead."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

PYTEST = (sys.executable, "-m", "pytest", "-q")
ALONE = (
    "--stores=embedded",
    "--ignore=tests/cluster",
    "--ignore=tests/index",
    "-m",
    "not long",
    "tests",
)
CLUSTER = ("--stores=cluster", "-p", "no:cacheprovider")
SLOWER = ("test_a*.py", "test_c*.py", "test_e*.py")
"""The files of the conformance suite that take half of its time."""

LIGHT = ("tests/cluster/test_several_engines.py", "tests/cluster/test_many_writers.py")
"""Of the tests with servers and processes, those that kill none."""


def main(further: list[str]) -> int:
    if further:
        return subprocess.call([*PYTEST, *further])
    files = sorted(Path("tests/conformance").glob("test_*.py"))
    slower = [str(file) for file in files if any(file.match(name) for name in SLOWER)]
    others = [str(file) for file in files if str(file) not in slower]
    with ExitStack() as stack:
        beside = [
            _start(stack, *CLUSTER, *slower),
            _start(stack, *CLUSTER, "tests/index", *LIGHT, *others),
        ]
        codes = [subprocess.call([*PYTEST, *ALONE])]
        for process, said in beside:
            codes.append(process.wait())
            said.seek(0)
            print("── on the stores of a cluster ──", said.read().decode(), sep="\n", flush=True)
    return max(codes, key=abs)


def _start(stack: ExitStack, *arguments: str) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    said: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is one
    process = subprocess.Popen([*PYTEST, *arguments], stdout=said, stderr=subprocess.STDOUT)
    stack.callback(process.terminate)
    return process, said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
