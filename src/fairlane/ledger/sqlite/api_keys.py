"""API keys in SQLite. Another process may change them beside the process that owns the ledger,
which caches no key."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlane.errors import LedgerInUse
from fairlane.ledger.api_keys import (
    COLUMNS,
    ApiKeys,
    ApiKeyVerbs,
    KeyAddition,
    KeyRedemption,
    KeyRevocation,
    audit_text,
    key_of,
    values,
)
from fairlane.ledger.sqlite.connect import Ownership, connect, explained, made_ready
from fairlane.ledger.sqlite.migrate import demand_schema, migrate
from fairlane.model.key import Key


class BesideOwner:
    """The API keys of a file that another process may own."""

    def __init__(self, path: Path) -> None:
        path = made_ready(path)
        self._path, self._connection = path, connect(path)
        with suppress(LedgerInUse):  # the owning process has migrated the file
            ownership = Ownership(path)
            try:
                migrate(self._connection)
            except sqlite3.Error as error:
                raise explained(path, error) from error
            finally:
                ownership.release()
        demand_schema(self._connection)
        self.keys = ApiKeys(self._write, self._read, VERBS)

    async def close(self) -> None:
        self._connection.close()

    async def _write(self, verb: Callable[..., list[Any]], item: Any) -> Any:
        try:
            return self._written(verb, item)
        except sqlite3.Error as error:
            raise explained(self._path, error) from error

    def _written(self, verb: Callable[..., list[Any]], item: Any) -> Any:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            (outcome,) = verb(self._connection, [item])
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return outcome

    async def _read(self, query: Callable[..., Any], *args: object) -> Any:
        try:
            return query(self._connection, *args)
        except sqlite3.Error as error:
            raise explained(self._path, error) from error


def _add(tx: sqlite3.Connection, items: Sequence[KeyAddition]) -> list[bool]:
    marks = ", ".join("?" * len(values(items[0].key)))
    done = []
    for key, actor in items:
        added = tx.execute(
            f"INSERT OR IGNORE INTO keys ({COLUMNS}) VALUES ({marks})", values(key)
        ).rowcount
        if added:
            _audit(tx, (key.created_at, actor, "add key", key.id, None, audit_text(key)))
        known = tx.execute("SELECT hash FROM keys WHERE id = ?", (key.id,)).fetchone()
        done.append(known == (key.hash,))
    return done


def _revoke(tx: sqlite3.Connection, items: Sequence[KeyRevocation]) -> list[bool]:
    done = []
    for key, now, actor in items:
        found = tx.execute("SELECT revoked_at FROM keys WHERE id = ?", (key,)).fetchone()
        done.append(found is not None)
        if found == (None,):
            tx.execute("UPDATE keys SET revoked_at = ? WHERE id = ?", (now, key))
            _audit(tx, (now, actor, "revoke key", key, None, None))
    return done


def _audit(tx: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    tx.execute(
        "INSERT INTO audit (at, actor, action, target, before, after) VALUES (?, ?, ?, ?, ?, ?)",
        row,
    )


def _get(connection: sqlite3.Connection, key: str) -> Key | None:
    row = connection.execute(f"SELECT {COLUMNS} FROM keys WHERE id = ?", (key,)).fetchone()
    return None if row is None else key_of(row)


def _page(connection: sqlite3.Connection, after: str | None, limit: int) -> list[Key]:
    found = connection.execute(
        f"SELECT {COLUMNS} FROM keys WHERE ?1 IS NULL OR (created_at, id) > "
        "(SELECT created_at, id FROM keys WHERE id = ?1) ORDER BY created_at, id LIMIT ?2",
        (after, limit),
    )
    return [key_of(row) for row in found]


def _names(connection: sqlite3.Connection, most: int) -> frozenset[str]:
    return frozenset(row[0] for row in connection.execute("SELECT id FROM keys LIMIT ?", (most,)))


def _any(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM keys LIMIT 1").fetchone() is not None


def _secret(tx: sqlite3.Connection, items: Sequence[str]) -> list[str]:
    for item in items:
        tx.execute("UPDATE meta SET value = ? WHERE name = 'secret' AND value = ''", (item,))
    (found,) = tx.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
    return [found] * len(items)


def _redeem(tx: sqlite3.Connection, items: Sequence[KeyRedemption]) -> list[bool]:
    done = []
    for ticket, until, now in items:
        tx.execute("DELETE FROM tickets WHERE until <= ?", (now,))
        cursor = tx.execute("INSERT OR IGNORE INTO tickets VALUES (?, ?)", (ticket, until))
        done.append(cursor.rowcount > 0)
    return done


def _redeemed(connection: sqlite3.Connection, ticket: str) -> bool:
    found = connection.execute("SELECT 1 FROM tickets WHERE id = ?", (ticket,))
    return found.fetchone() is not None


VERBS = ApiKeyVerbs(_add, _revoke, _get, _page, _names, _any, _secret, _redeem, _redeemed)
