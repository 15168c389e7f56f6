"""Epochs: the generation of the index and the version of the settings."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fairlane.ledger.messages import Stamp, Turn
from fairlane.ledger.requests import RebuildRequest
from fairlane.ledger.sqlite.writer import SqliteTransaction


def meta(connection: SqliteTransaction | sqlite3.Connection, name: str) -> str:
    (value,) = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return str(value)


def set_meta(tx: SqliteTransaction, **values: str) -> None:
    for name, value in values.items():
        tx.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))


def stamp(connection: SqliteTransaction | sqlite3.Connection) -> Stamp:
    return Stamp.parse(meta(connection, "epoch"))


def turn(connection: sqlite3.Connection) -> tuple[Stamp, Turn]:
    return stamp(connection), Turn(0, busy=False)


def begin_rebuild(tx: SqliteTransaction, items: Sequence[RebuildRequest]) -> list[bool]:
    """Begin a rebuild. The file belongs to one process, so no other rebuild can be in progress."""
    for item in items:
        set_meta(tx, epoch=str(Stamp(item.life, stamp(tx).settings)))
    return [True] * len(items)
