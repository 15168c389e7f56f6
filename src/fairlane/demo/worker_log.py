"""What a worker of the demo prints, and what the demo reads from it: the model that the worker
loads, the jobs that it runs, how often it loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from fairlane.clock import SystemClock


def write(what: str, *names: str) -> None:
    """Prints a line for `WorkerLog`."""
    sys.stdout.write(" ".join(("worker", str(os.getpid()), str(SystemClock().now()), what, *names)))
    sys.stdout.write("\n")
    sys.stdout.flush()


@contextmanager
def running(job: str, model: str) -> Iterator[None]:
    """Prints when the job begins, and when it ends, or stops without an end."""
    write("begins", job, model)
    what = "stops"
    try:
        yield
        what = "ends"
    finally:
        write(what, job)


class WorkerLog:
    """Reads the log of the worker process, which goes on after a restart."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self.loads = 0
        self.begun: dict[str, float] = {}
        """When each job began for the first time (Unix time, seconds)."""

        self.models: dict[str, str] = {}
        """The model of each job that has begun."""

        self.done: set[str] = set()
        self.most = 0
        """The highest number of jobs that one process ran at once."""

        self._running: set[str] = set()
        self._pid, self._what, self._name = 0, "", ""

    def read(self) -> None:
        """Reads what is new."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.decode().splitlines():
            if line.startswith("worker "):
                _, pid, at, what, *names = line.split()
                if int(pid) != self._pid:
                    self._running = set()
                self._pid, self._what, self._name = int(pid), what, names[0]
                self._note(int(at) / 1e6, what, *names)

    def _note(self, at: float, what: str, name: str, model: str = "") -> None:
        if what == "loads":
            self.loads += 1
        elif what == "begins":
            self.begun.setdefault(name, at)
            self.models[name] = model
            self._running.add(name)
            self.most = max(self.most, len(self._running))
        elif what in {"ends", "stops"}:
            self._running.discard(name)
            if what == "ends":
                self.done.add(name)

    def all_running(self, pid: int | None) -> set[str]:
        """The jobs that the process with this id runs."""
        return self._running if pid == self._pid else set()

    def runs(self, pid: int | None) -> str:
        """The job that the process with this id has begun last and runs, or an empty text."""
        return self._name if pid == self._pid and self._what == "begins" else ""

    def loading(self, pid: int | None) -> str:
        """The model that the process with this id loads, or an empty text."""
        return self._name if pid == self._pid and self._what == "loads" else ""

    def is_new(self, pid: int | None) -> bool:
        """Whether the process with this id has not done anything yet."""
        return pid != self._pid


def loads_needed(models: Iterable[str]) -> int:
    """How many models have to be loaded for jobs in this order. A job without one needs none."""
    return sum(1 for _ in groupby(model for model in models if model))
