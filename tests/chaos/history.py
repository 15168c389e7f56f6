"""Writes the JSONL history of a run, record by record."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any


class HistoryWriter:
    """Appends records to a file. A line is whole or, after a kill, the last one."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, kind: str, **fields: Any) -> None:
        self._file.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._file.flush()

    def note(self, kind: str, **fields: Any) -> float:
        """A record of something that happens now. Returns the time."""
        at = now()
        self.write(kind, at=at, **fields)
        return at

    def append_file(self, path: Path) -> None:
        """The records of another process. It may have been killed while it wrote the last one."""
        if path.exists():
            text = path.read_text(encoding="utf-8")
            self._file.write(text[: text.rfind("\n") + 1])
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def now() -> float:
    return time.time()  # noqa: TID251 - the times of the ledger are of this clock, too


def digest(token: str) -> str:
    """Names a lease in a history without telling its secret."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]
