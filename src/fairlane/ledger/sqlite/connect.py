"""Opening the file: durability, migrations, and the lock that makes this process its owner."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO

from fairlane.errors import LedgerInUse, LedgerTooNew, SetupError

SCHEMA = resources.files("fairlane.ledger.migrations") / "sqlite"


def connect(
    path: Path, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """A connection whose COMMIT returns after fsync."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=512, factory=factory
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -4096")  # the system has the rest; 64 MB were no faster
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA wal_autocheckpoint = 64000")  # far behind `Checkpoints`
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


def demand_schema(connection: sqlite3.Connection) -> None:
    """Another process owns the file: it has the schema of that one, which must be ours."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    needed = len(_steps())
    if version != needed:
        raise SetupError(
            f"the ledger is at schema {version}, this Fairlane needs {needed}, and another process "
            "uses it: stop that one, then run: fairlane migrate"
        )


def _steps() -> list[Traversable]:
    return sorted(
        (step for step in SCHEMA.iterdir() if step.name.endswith(".sql")),
        key=lambda step: step.name,
    )


def migrate(connection: sqlite3.Connection) -> None:
    """Apply every step this file has not seen, each in a transaction of its own."""
    steps = _steps()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise LedgerTooNew(
            f"the ledger is at schema {version}, this Fairlane knows {len(steps)}; upgrade it"
        )
    for number, step in enumerate(steps, start=1):
        if number > version:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{step.read_text()}\nPRAGMA user_version = {number};\nCOMMIT;"
            )


class Ownership:
    """One process at a time. The lock dies with the process, however it dies."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        try:
            self._file: IO[str] = self._path.open("a+")
        except OSError as error:
            raise SetupError(f"cannot write {self._path}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read().strip() or "another process"
            self._file.close()
            raise LedgerInUse(
                f"{path} is in use by {owner}; an embedded ledger belongs to one process: "
                "stop that one, or choose another data folder"
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()}")
        self._file.flush()

    def release(self) -> None:
        self._file.close()
