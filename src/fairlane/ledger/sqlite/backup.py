"""Backup and restore of an embedded ledger. A restored ledger refuses every earlier lease."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from fairlane.errors import LedgerUnusable, SetupError
from fairlane.ids import token
from fairlane.ledger.messages import Stamp
from fairlane.ledger.sqlite.connect import (
    LOG,
    LOG_INDEX,
    PRIVATE_MODE,
    Ownership,
    connect,
    explained,
)
from fairlane.ledger.sqlite.migrate import migrate


class Backup(NamedTuple):
    jobs: int
    size: int
    """Bytes of the file."""


class Restored(NamedTuple):
    """`leases` got a new token. `missing` counts the jobs that the replaced ledger held and the
    backup does not; `kept` is where that ledger is now."""

    jobs: int | None
    leases: int
    missing: int
    kept: Path | None


def back_up(ledger: Path, target: Path) -> Backup:
    """Write a consistent copy of a ledger, which another process may be using."""
    if not ledger.is_file():
        raise SetupError(f"there is no ledger at {ledger}; name its folder with --data")
    if target.exists():
        raise SetupError(f"{target} exists already; remove it first, or name another file")
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_MODE))
        with closing(connect(ledger)) as source:
            source.execute("VACUUM INTO ?", (str(part),))
        with closing(sqlite3.connect(part)) as copy:
            _demand_sound(copy, part)
            (jobs,) = copy.execute("SELECT count(*) FROM jobs").fetchone()
        _to_disk(part)
        part.rename(target)
        _to_disk(target.parent)
    except OSError as error:
        raise SetupError(f"cannot write {target}: {error.strerror}; name another file") from None
    except sqlite3.Error as error:
        raise explained(ledger, error) from error
    return Backup(jobs, target.stat().st_size)


def restore(backup: Path, ledger: Path) -> Restored:
    """Put a backup in the place of a ledger that no process uses."""
    if not backup.is_file():
        raise SetupError(f"there is no backup at {backup}")
    ledger = ledger.resolve()
    ledger.parent.mkdir(0o700, parents=True, exist_ok=True)
    ownership = Ownership(ledger)
    part = ledger.with_name(f"{ledger.name}.restore")
    try:
        shutil.copyfile(backup, part)
        part.chmod(PRIVATE_MODE)
        with closing(connect(part)) as copy:
            _demand_sound(copy, backup)
            migrate(copy)
            leases = refuse_earlier_leases(copy)
            (jobs,) = copy.execute("SELECT count(*) FROM jobs").fetchone()
            missing = _missing(copy, ledger)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            copy.execute("PRAGMA journal_mode = DELETE")  # the copy is one file when it is renamed
        _to_disk(part)
        kept = _set_aside(ledger)
        part.rename(ledger)
        _to_disk(ledger.parent)
    except OSError as error:
        raise SetupError(f"cannot restore to {ledger}: {error.strerror}") from None
    except sqlite3.Error as error:
        raise explained(backup, error) from error
    finally:
        for end in ("", LOG, LOG_INDEX):
            _beside(part, end).unlink(missing_ok=True)
        ownership.release()
    return Restored(jobs, leases, missing, kept)


def refuse_earlier_leases(connection: sqlite3.Connection) -> int:
    """Give every lease a token that no worker knows, and the index a new generation. Returns the
    number of leases."""
    connection.execute("BEGIN IMMEDIATE")
    held = [row[0] for row in connection.execute("SELECT token FROM jobs WHERE token IS NOT NULL")]
    slots = [row[0] for row in connection.execute("SELECT DISTINCT token FROM slots")]
    changes = [(token(), old) for old in {*held, *slots}]
    connection.executemany("UPDATE jobs SET token = ? WHERE token = ?", changes)
    connection.executemany("UPDATE slots SET token = ? WHERE token = ?", changes)
    (epoch,) = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    connection.execute(
        "UPDATE meta SET value = ? WHERE name = 'epoch'",
        (str(Stamp.parse(epoch)._replace(life=token())),),
    )
    connection.execute("COMMIT")
    return len(held)


def _demand_sound(copy: sqlite3.Connection, path: Path) -> None:
    (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise LedgerUnusable(f"{path} is damaged ({verdict}); use an older backup")


def _missing(copy: sqlite3.Connection, ledger: Path) -> int:
    """How many jobs the present ledger holds that the copy does not."""
    if not ledger.is_file():
        return 0
    try:
        with closing(connect(ledger)):  # refuses the database of another program
            pass
        copy.execute("ATTACH ? AS present", (str(ledger),))
        query = "SELECT count(*) FROM present.jobs WHERE id NOT IN (SELECT id FROM main.jobs)"
        (missing,) = copy.execute(query).fetchone()
        copy.execute("DETACH present")
    except sqlite3.DatabaseError:
        return 0  # the ledger that is replaced is damaged
    except LedgerUnusable as error:
        if type(error.__cause__) is sqlite3.DatabaseError:  # it is damaged, too
            return 0
        raise
    return int(missing)


def _set_aside(ledger: Path) -> Path | None:
    """Keep the present ledger under another name. Its file stays in place until it is replaced. Its
    log does not: SQLite would apply it to the restored ledger and damage that."""
    if ledger.is_file():
        with suppress(sqlite3.Error), closing(sqlite3.connect(ledger)) as present:
            present.execute("PRAGMA journal_mode = DELETE")  # takes the log into the file
    number = 1
    while any(_beside(kept := _kept(ledger, number), end).exists() for end in ("", LOG)):
        number += 1
    found = ledger.is_file()
    if found:
        os.link(ledger, kept)
    with suppress(FileNotFoundError):  # a log that was not taken in
        _beside(ledger, LOG).rename(_beside(kept, LOG))
    _beside(ledger, LOG_INDEX).unlink(missing_ok=True)
    return kept if found else None


def _kept(ledger: Path, number: int) -> Path:
    return _beside(ledger, f".before-restore-{number}")


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
