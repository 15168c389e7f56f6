"""Which stores the worlds of a test stand on. A path names a world's ledger on all of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Protocol

from fairlane.clock import ManualClock
from fairlane.compose import cluster, embedded, shared
from fairlane.engine import Engine
from fairlane.ledger.postgres import PostgresLedger
from fairlane.model.catalog import Catalog
from tests.servers import Databases, Keys


class Stores(Protocol):
    async def open(
        self,
        settings: Catalog,
        path: Path,
        clock: ManualClock,
        seed: int,
        connection: type[sqlite3.Connection],
    ) -> Engine:
        """A queue over the ledger of that name, as it was left or new."""


class Embedded:
    """SQLite and memory."""

    async def open(
        self,
        settings: Catalog,
        path: Path,
        clock: ManualClock,
        seed: int,
        connection: type[sqlite3.Connection],
    ) -> Engine:
        return await embedded(
            settings, path, clock=clock, sweeping=False, seed=seed, connection=connection
        )


class PostgresAndMemory:
    """A database a path, on a server that forgets everything when it dies."""

    def __init__(self, server: Databases) -> None:
        self._server = server
        self._databases: dict[Path, str] = {}
        self._fresh = ""

    async def open(
        self,
        settings: Catalog,
        path: Path,
        clock: ManualClock,
        seed: int,
        connection: type[sqlite3.Connection],
    ) -> Engine:
        url = await self.database(path)
        return await shared(settings, url, clock=clock, sweeping=False, seed=seed, unsafe=True)

    async def database(self, path: Path) -> str:
        if path not in self._databases:
            self._databases[path] = await self._new_database()
        return self._databases[path]

    async def _new_database(self) -> str:
        """A copy of one whose schema is there: migrating takes longer."""
        if not self._fresh:
            url = await self._server.new_database()
            await (await PostgresLedger.open(url, unsafe=True)).close()
            self._fresh = url.rpartition("/")[2]
        return await self._server.new_database(like=self._fresh)


class PostgresAndRedis(PostgresAndMemory):
    """A database and a prefix a path."""

    def __init__(self, server: Databases, keys: Keys) -> None:
        super().__init__(server)
        self._keys = keys

    async def open(
        self,
        settings: Catalog,
        path: Path,
        clock: ManualClock,
        seed: int,
        connection: type[sqlite3.Connection],
    ) -> Engine:
        database = await self.database(path)
        prefix = f"{{{database.rpartition('/')[2]}}}:"
        return await cluster(
            settings,
            database,
            self._keys.url,
            clock=clock,
            sweeping=False,
            seed=seed,
            prefix=prefix,
            unsafe=True,
        )


present: Stores = Embedded()
