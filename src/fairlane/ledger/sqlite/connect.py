"""Connections to the SQLite file: checks that it is a ledger, sets durability, and takes the lock
that makes this process its owner."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import IO

from fairlane.errors import LedgerInUse, LedgerUnusable, SetupError

PRIVATE_MODE = 0o600
MIN_FREE_BYTES = 1 << 20
LOG, LOG_INDEX = "-wal", "-shm"
BESIDE = ("", LOG, LOG_INDEX, ".lock")
"""The file name suffixes of the files that make up a ledger."""

TABLES = ("jobs", "meta", "slots")
"""A database that has tables, but not these, belongs to another program."""


def made_ready(path: Path) -> Path:
    """Create the file and its folder, accessible to their owner only, and return its real path.
    SQLite gives the files it creates beside it the same mode."""
    path = path.resolve()  # a symbolic link to the file must not be a second ledger
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_MODE))
    except FileExistsError:
        pass  # not opened again: closing it would release SQLite's locks
    except OSError as error:
        raise LedgerUnusable(
            f"cannot write {path}: {error.strerror}; make room, check who owns the folder, or "
            "choose another one (--data)"
        ) from None
    for end in BESIDE:
        file = path.with_name(path.name + end)
        if file.is_file():
            with suppress(PermissionError):  # another user owns it and has to set its mode
                file.chmod(PRIVATE_MODE)
    return path


def connect(
    path: Path, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """A connection whose COMMIT returns after fsync. Raises LedgerUnusable, without changing the
    file, if it belongs to another program."""
    try:
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
            factory=factory,
        )
        try:
            return _prepared(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise explained(path, error) from error


def _prepared(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if tables and not tables.issuperset(TABLES):
        raise LedgerUnusable(
            f"{path} is a database of another program; choose another data folder (--data)"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -4096")  # the OS caches the rest; 64 MB were no faster
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA wal_autocheckpoint = 64000")  # a fallback, far above `Checkpoints`
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


def demand_room(path: Path) -> None:
    """Raise LedgerUnusable if the largest input of a job would not fit on the disk. A small change
    may still succeed then: the log reuses space."""
    disk = os.statvfs(path)
    if disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
        raise LedgerUnusable(f"the disk of {path} is full; make room")


def explained(path: Path, error: sqlite3.Error) -> LedgerUnusable:
    """What is wrong with the file, and how to fix it."""
    match getattr(error, "sqlite_errorname", "").split("_")[1:]:
        case ["NOTADB", *_]:
            what = f"{path} is not a ledger ({error}); choose another data folder (--data), or move"
            return LedgerUnusable(f"{what} the file away")
        case ["CORRUPT", *_]:
            return LedgerUnusable(
                f"{path} is damaged ({error}); copy its folder first, then restore a backup, or "
                f"save what can be read with: sqlite3 {path} .recover"
            )
        case ["FULL", *_]:
            return LedgerUnusable(f"the disk of {path} is full; make room and start again")
        case ["READONLY" | "CANTOPEN" | "PERM" | "AUTH", *_]:
            return LedgerUnusable(
                f"cannot write {path}: {error}; check who owns the file and its folder"
            )
        case ["IOERR", *_]:
            return LedgerUnusable(
                f"the disk of {path} fails or is full ({error}); make room, check the disk, and "
                "start again"
            )
        case _:
            return LedgerUnusable(
                f"cannot use {path}: {error}; choose another data folder (--data)"
            )


class Ownership:
    """The file lock that allows one owning process at a time. The system releases it when the
    process ends, even in a crash."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        try:
            number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE_MODE)
            self._file: IO[str] = os.fdopen(number, "a+")
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
        with suppress(OSError):  # a full disk: the lock holds without its owner's name in it
            os.ftruncate(number, 0)
            os.write(number, f"process {os.getpid()}".encode())

    def release(self) -> None:
        self._file.close()
