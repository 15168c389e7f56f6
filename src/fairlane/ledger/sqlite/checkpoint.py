"""WAL checkpoints: a separate thread copies the write-ahead log into the database file, so that no
commit has to. Only speed depends on it; the log alone is durable."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from fairlane.ledger.sqlite.connect import connect

ROWS_PER_CHECKPOINT = 10_000
"""Rows written between two checkpoints."""

MAX_LOG_BYTES = 64 << 20
"""A log above this size is emptied. A passive checkpoint never shrinks the file, and it never ends
while commits arrive faster than it copies them."""

MAX_WRITER_WAIT_MS = 200
"""How long emptying the log waits for readers. Commits wait as long."""


class Checkpoints:
    def __init__(self, path: Path) -> None:
        self._connection, self._rows = connect(path), 0
        self._connection.execute(f"PRAGMA busy_timeout = {MAX_WRITER_WAIT_MS}")
        self._log = path.with_name(f"{path.name}-wal")
        self._due, self._over = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="fairlane-checkpoint", daemon=True)
        self._thread.start()

    def wrote(self, rows: int) -> None:
        self._rows += rows
        if self._rows >= ROWS_PER_CHECKPOINT:
            self._rows = 0
            self._due.set()

    def close(self) -> None:
        self._over = True
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        connection = self._connection
        while self._due.wait() and not self._over:
            self._due.clear()
            try:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                if self._log.stat().st_size > MAX_LOG_BYTES:
                    # What is left to copy is little: commits wait for milliseconds.
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except (sqlite3.OperationalError, FileNotFoundError):
                continue  # for example a full disk, which the writer reports to its callers
        connection.close()
