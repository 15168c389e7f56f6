"""WAL checkpoints: the write-ahead log of an embedded ledger stays small."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairlane.ledger.sqlite import checkpoint
from fairlane.ledger.sqlite.checkpoint import ROWS_PER_CHECKPOINT, Checkpoints
from fairlane.ledger.sqlite.connect import TABLES, connect

MAX_LOG_BYTES = 1 << 20


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checkpoint, "MAX_LOG_BYTES", MAX_LOG_BYTES)
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as made:
        for table in TABLES:
            made.execute(f"CREATE TABLE {table} (content BLOB)")
        made.commit()
    return path


@pytest.fixture
def writer(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(database)) as connection:
        yield connection


def log_bytes(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def write(connection: sqlite3.Connection, rows: int) -> None:
    connection.executemany("INSERT INTO jobs VALUES (zeroblob(65536))", [()] * rows)


def checkpointed(checkpoints: Checkpoints, looked: threading.Event) -> None:
    """Asks for a checkpoint and waits for its end."""
    looked.clear()
    checkpoints.wrote(ROWS_PER_CHECKPOINT)
    assert looked.wait(30)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set when a checkpoint has ended."""
    event = threading.Event()

    class Due(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set():
                event.set()
            return super().wait(timeout)

    monkeypatch.setattr("fairlane.ledger.sqlite.checkpoint.threading.Event", Due)
    return event


def test_a_log_that_grew_under_load_is_emptied(
    database: Path, writer: sqlite3.Connection, looked: threading.Event
) -> None:
    checkpoints = Checkpoints(database)
    write(writer, 40)
    assert log_bytes(database) > MAX_LOG_BYTES
    checkpointed(checkpoints, looked)
    assert log_bytes(database) == 0
    checkpoints.close()


def test_a_small_log_is_reused_and_not_emptied(
    database: Path, writer: sqlite3.Connection, looked: threading.Event
) -> None:
    checkpoints = Checkpoints(database)
    write(writer, 4)
    before = log_bytes(database)
    checkpointed(checkpoints, looked)
    assert log_bytes(database) == before
    checkpoints.close()


def test_a_long_read_delays_emptying_and_loses_nothing(
    database: Path, writer: sqlite3.Connection, looked: threading.Event
) -> None:
    checkpoints = Checkpoints(database)
    with closing(connect(database)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
        write(writer, 40)
        checkpointed(checkpoints, looked)
        assert log_bytes(database) > MAX_LOG_BYTES
        write(writer, 1)  # the writer does not wait for the reader
        reader.execute("COMMIT")
    checkpointed(checkpoints, looked)
    assert log_bytes(database) == 0
    assert writer.execute("SELECT count(*) FROM jobs").fetchone() == (41,)
    checkpoints.close()
