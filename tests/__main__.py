"""All tests, a few parts at a time on two cores: what needs no server, what goes over HTTP, and
the same promises on the stores of a cluster, which mostly waits for answers. The next part starts
when one has ended. `stores` runs what is left of the promises on a cluster, all of them on
PostgreSQL alone, the longer searches on one file and over HTTP, the gateway and the dispatcher.
Processes that are killed, and HTTP over a cluster, are `make cluster` (`tests/cluster`); pages in a
browser are `tests/browser`. Any other arguments go to one pytest instead."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

PYTEST = (sys.executable, "-m", "pytest", "-q")
EMBEDDED = ("--stores=embedded", "-m", "not long")
PARTS = (
    ("tests/api",),
    ("tests/repo", "tests/docs"),
    ("tests/worker", "tests/webhooks"),
)
"""Folders, one part each, the longest first."""

WITH_SERVICES = ("tests/gateway", "tests/dispatch")
"""Start servers or services for almost every test. `stores` runs them."""

AT_ONCE = 3
"""Parts that run at the same time: one of them mostly waits."""

CLUSTER = ("--stores=cluster", "-p", "no:cacheprovider")
POSTGRES = ("--stores=postgres", "-p", "no:cacheprovider")
GENERAL = ("--stores=general", "-p", "no:cacheprovider")
HOT = ("admission", "attempts", "durability", "endings", "first", "limits", "pipelines")
"""The files of the conformance suite about what PostgreSQL has shortcuts for. They run without them
too."""

SLOWER = tuple(f"test_{letter}*.py" for letter in "acefilmr")
"""The files of the conformance suite that take most of its time."""

LIGHT = (
    "tests/cluster/test_several_engines.py",
    "tests/cluster/test_many_writers.py",
    "tests/cluster/test_lock_order.py",
)
"""Of the tests with servers and processes, those that kill none."""

POLL_SECONDS = 0.2


def main(further: list[str]) -> int:
    files = sorted(Path("tests/conformance").glob("test_*.py"))
    slower = [str(file) for file in files if any(file.match(name) for name in SLOWER)]
    others = [str(file) for file in files if str(file) not in slower]
    if further == ["stores"]:
        return _run(
            (*POSTGRES, "tests/conformance"),
            (*CLUSTER, *slower),
            (*GENERAL, *(f"tests/conformance/test_{name}.py" for name in HOT)),
            ("--stores=embedded", "-m", "long", "tests/conformance", "tests/crash", "tests/api"),
            (*EMBEDDED, "-p", "no:cacheprovider", *WITH_SERVICES),
        )
    if further:
        return subprocess.call([*PYTEST, *further])
    apart = [folder for folders in PARTS for folder in folders]
    elsewhere = ("tests/browser", "tests/cluster", "tests/index", *WITH_SERVICES, *apart)
    return _run(
        (*EMBEDDED, "tests", *(f"--ignore={folder}" for folder in elsewhere)),
        (*CLUSTER, "tests/index", *LIGHT, *others),
        *((*EMBEDDED, "-p", "no:cacheprovider", *folders) for folders in PARTS),
    )


class Part:
    """A pytest of its own. What it says is kept for `tell`, unless it is shown at once."""

    def __init__(self, stack: ExitStack, arguments: tuple[str, ...], *, shown: bool) -> None:
        self._name = " ".join(each for each in arguments if each.startswith(("--stores", "tests")))
        self._said: IO[bytes] | None = None
        if not shown:
            self._said = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is one
        self.process = subprocess.Popen(
            [*PYTEST, *arguments],
            stdout=self._said,
            stderr=subprocess.STDOUT if self._said else None,
        )
        stack.callback(self.process.terminate)

    def tell(self) -> None:
        if self._said is not None:
            self._said.seek(0)
            print(f"── {self._name} ──", self._said.read().decode(), sep="\n", flush=True)


def _run(*arguments: tuple[str, ...]) -> int:
    """A few at a time, in this order. What the first one says is seen as it says it, what the
    others say when they and the first have ended."""
    with ExitStack() as stack:
        parts: list[Part] = []
        running: list[Part] = []
        untold: list[Part] = []
        while running or len(parts) < len(arguments):
            while len(running) < AT_ONCE and len(parts) < len(arguments):
                parts.append(Part(stack, arguments[len(parts)], shown=not parts))
                running.append(parts[-1])
            with suppress(subprocess.TimeoutExpired):
                running[0].process.wait(POLL_SECONDS)
            untold += [part for part in running if part.process.poll() is not None]
            running = [part for part in running if part.process.poll() is None]
            if parts[0] not in running:
                for part in untold:
                    part.tell()
                untold.clear()
    return max((part.process.returncode for part in parts), key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
