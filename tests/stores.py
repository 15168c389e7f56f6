"""Which stores the worlds of a test stand on. A path names a world's ledger on all of them."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import asyncpg
import pytest

from fairlane.clock import ManualClock
from fairlane.compose import cluster, embedded, shared
from fairlane.engine import Engine
from fairlane.ledger.postgres.fast_path import QUICK
from fairlane.model.catalog import Catalog
from fairlane.servers import Databases, RedisKeyspace

MOST_DATABASES = 8


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

    async def open(
        self,
        settings: Catalog,
        path: Path,
        clock: ManualClock,
        seed: int,
        connection: type[sqlite3.Connection],
    ) -> Engine:
        url = await self.database(path)
        return await shared(
            settings, url, clock=clock, sweeping=False, seed=seed, unsafe=True, alone=False
        )

    async def database(self, path: Path) -> str:
        """The one of this path. What has not been used for longest is emptied and used again."""
        if path not in self._databases:
            if len(self._databases) < MOST_DATABASES:
                self._databases[path] = await self._server.new_database()
            else:
                self._databases[path] = self._databases.pop(next(iter(self._databases)))
                await _emptied(self._databases[path])
        return self._databases[path]


async def _emptied(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "fairlane"})
    try:
        await connection.execute(
            "TRUNCATE jobs, rolls, inputs, steps, attempts, events, pools, slots, outbox, "
            "idempotency, "
            "users, quotas, accounts, entries, workers, settings, audit, keys, tickets, "
            "known_tiers, bulk_actions, key_users, webhooks, webhook_secrets RESTART IDENTITY; "
            "UPDATE meta SET value = CASE name WHEN 'epoch' THEN '/0' WHEN 'turn' THEN '0/' "
            "WHEN 'clock' THEN '0/0/0' "
            "ELSE '' END; UPDATE line SET queued = 0, running = 0"
        )
    finally:
        await connection.close()


class PostgresAndRedis(PostgresAndMemory):
    """A database and a prefix a path."""

    def __init__(self, server: Databases, keys: RedisKeyspace) -> None:
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
        prefix = f"{{{path.parent.name}{path.name}{zlib.crc32(bytes(path))}}}:"
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


@contextmanager
def used(request: pytest.FixtureRequest, name: str | None) -> Iterator[None]:
    """Worlds stand on these stores inside the block. `general` is PostgreSQL without its shortcuts
    for the common case: what every verb falls back to is as right as they are."""
    global present  # noqa: PLW0603 - what `World` opens
    before = present
    quick = dict(QUICK)
    if name == "general":
        QUICK.clear()
    if name in ("postgres", "general"):
        present = PostgresAndMemory(request.getfixturevalue("postgres_server"))
    if name == "cluster":
        present = PostgresAndRedis(
            request.getfixturevalue("postgres_server"), request.getfixturevalue("redis_server")
        )
    try:
        yield
    finally:
        present = before
        QUICK.update(quick)
