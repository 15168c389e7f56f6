"""A read-only view of a ledger that another process may own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from fairlane.errors import SetupError
from fairlane.ledger.sql_ledger import SqlReader
from fairlane.ledger.sqlite import queries
from fairlane.ledger.sqlite.connect import explained

T = TypeVar("T")


class SqliteReadOnly(SqlReader):
    """A ledger that writes nothing and waits for no lock."""

    _queries = queries

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise SetupError(f"there is no ledger at {path}")
        self._path = path
        try:
            self._connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        except sqlite3.Error as error:
            raise explained(path, error) from error

    async def _read(self, query: Callable[..., T], *args: object) -> T:
        try:
            return query(self._connection, *args)
        except sqlite3.Error as error:
            raise explained(self._path, error) from error

    def close(self) -> None:
        self._connection.close()
