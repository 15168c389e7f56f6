"""A look at a SQLite file before a process serves it (preflight check)."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from fairlane.ledger.api_keys import MAX_KEYS
from fairlane.ledger.sqlite import api_keys
from fairlane.ledger.sqlite.connect import explained
from fairlane.ledger.sqlite.migrate import known_schema
from fairlane.ledger.sqlite.store_stats import server
from fairlane.ledger.store_stats import StoreProbe, StoreServer


def probe(path: Path) -> StoreProbe:
    """The file and its keys. A file that does not exist has no schema. Raises LedgerUnusable."""
    if not path.exists():
        return StoreProbe(_new(path), [])
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            found = server(connection)
            keys = []
            if found.schema == found.known_schema:
                keys = api_keys.VERBS.page(connection, None, MAX_KEYS)
            return StoreProbe(found, keys)
    except sqlite3.Error as error:
        raise explained(path, error) from error


def _new(path: Path) -> StoreServer:
    folder = next(each for each in path.resolve().parents if each.exists())
    disk = os.statvfs(folder)
    return StoreServer(
        "sqlite",
        sqlite3.sqlite_version,
        None,
        known_schema(),
        {},
        read_only=not os.access(folder, os.W_OK),
        free_bytes=disk.f_bavail * disk.f_frsize,
        disk_bytes=disk.f_blocks * disk.f_frsize,
    )
