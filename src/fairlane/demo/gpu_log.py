"""What the demo's GPU printed: the model it loads, the job it runs, how often it loaded."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path


class GpuLog:
    """Reads the log of the worker process, which goes on after a restart."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self.loads = 0
        self.begun: dict[str, float] = {}
        """When each job began for the first time (Unix time, seconds)."""

        self.models: dict[str, str] = {}
        """The model of each job that has begun."""

        self.done: set[str] = set()
        self._pid, self._what, self._name = 0, "", ""

    def read(self) -> None:
        """Reads what is new."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.decode().splitlines():
            if line.startswith("gpu "):
                _, pid, at, what, *names = line.split()
                self._pid, self._what, self._name = int(pid), what, names[0]
                self._note(int(at) / 1e6, what, *names)

    def _note(self, at: float, what: str, name: str, model: str = "") -> None:
        if what == "loads":
            self.loads += 1
        elif what == "begins":
            self.begun.setdefault(name, at)
            self.models[name] = model
        elif what == "ends":
            self.done.add(name)

    def runs(self, pid: int | None) -> str:
        """The job that the process with this id runs, or an empty text."""
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
