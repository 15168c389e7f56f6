"""The composition root: turns settings into a wired engine. Only this module names a concrete
ledger or index."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlane.clock import Clock, SystemClock
from fairlane.config.settings import Settings
from fairlane.engine.engine import Engine
from fairlane.errors import NotSetUp, SetupError
from fairlane.index.index import IndexServer
from fairlane.index.memory import MemoryIndex
from fairlane.ledger.api_keys import ApiKeys
from fairlane.ledger.reader import LedgerReader
from fairlane.ledger.sqlite import SqliteLedger
from fairlane.ledger.sqlite.api_keys import BesideOwner
from fairlane.ledger.sqlite.backup import Backup, Restored, back_up, restore
from fairlane.ledger.sqlite.read_only import SqliteReadOnly
from fairlane.ledger.store_stats import StoreProbe
from fairlane.model.catalog import Catalog
from fairlane.model.catalog_text import catalog_of


async def opened(settings: Settings) -> Engine:
    """The engine that these settings describe. A database must have its schema already."""
    server, catalog = settings.server, settings.catalog
    if server.database_url is None:
        return await embedded(catalog, server.ledger)
    if server.redis_url is None:
        return await shared(catalog, server.database_url, unsafe=server.unsafe, migrating=False)
    return await cluster(
        catalog, server.database_url, server.redis_url, unsafe=server.unsafe, migrating=False
    )


async def joined(
    database: str, redis: str, *, prefix: str | None = None, unsafe: bool = False
) -> Engine:
    """An engine that joins an existing cluster and uses its stored settings."""
    from fairlane.ledger.postgres import PostgresLedger

    ledger = await PostgresLedger.open(database, unsafe=unsafe, migrating=False)
    try:
        known = await ledger.settings()
    finally:
        await ledger.close()
    if not known.file:
        raise NotSetUp("this cluster has no settings yet: start `fairlane serve` on it first")
    catalog = catalog_of(known.file)
    return await cluster(catalog, database, redis, prefix=prefix, unsafe=unsafe, migrating=False)


async def migrated(settings: Settings) -> None:
    """Creates or updates the schema of the database, or of the file, for this version."""
    if settings.server.database_url is None:
        await BesideOwner(settings.server.ledger).close()
        return
    from fairlane.ledger.postgres import PostgresLedger

    url, unsafe = settings.server.database_url, settings.server.unsafe
    await (await PostgresLedger.open(url, unsafe=unsafe)).close()


def backed_up(settings: Settings, target: Path) -> Backup:
    """Copies the embedded ledger of these settings to a file. A server may run at the same time."""
    if settings.server.database_url is not None:
        raise SetupError(
            "this ledger is in PostgreSQL: back it up with pg_dump, or with base backups and WAL "
            "archiving"
        )
    return back_up(settings.server.ledger, target)


async def restored(settings: Settings, source: Path | None) -> Restored:
    """Restores an embedded ledger from a backup, or makes a restored database fit for use."""
    url = settings.server.database_url
    if url is None:
        if source is None:
            raise SetupError("name the backup: fairlane restore FILE")
        return restore(source, settings.server.ledger)
    if source is not None:
        raise SetupError(
            "this ledger is in PostgreSQL: restore it with pg_restore first, then run "
            "`fairlane restore` without a file"
        )
    from fairlane.ledger.postgres.restored import refuse_earlier_leases

    return Restored(jobs=None, leases=await refuse_earlier_leases(url), missing=0, kept=None)


@asynccontextmanager
async def keys_of(settings: Settings) -> AsyncIterator[ApiKeys]:
    """The API keys of a ledger. Another process may serve it at the same time."""
    if settings.server.database_url is None:
        beside = BesideOwner(settings.server.ledger)
        try:
            yield beside.keys
        finally:
            await beside.close()
        return
    from fairlane.ledger.postgres import PostgresLedger

    url, unsafe = settings.server.database_url, settings.server.unsafe
    ledger = await PostgresLedger.open(url, unsafe=unsafe, migrating=False)
    try:
        yield ledger.keys
    finally:
        await ledger.close()


@asynccontextmanager
async def past_of(settings: Settings) -> AsyncIterator[LedgerReader]:
    """The jobs of a ledger, read-only. Another process may serve it at the same time."""
    if settings.server.database_url is None:
        file = SqliteReadOnly(settings.server.ledger)
        try:
            yield file
        finally:
            file.close()
        return
    from fairlane.ledger.postgres.read_only import PostgresReadOnly as ReadBesideOthers

    database = await ReadBesideOthers.open(settings.server.database_url)
    try:
        yield database
    finally:
        await database.close()


async def ledger_server(settings: Settings) -> StoreProbe:
    """The store behind the ledger of these settings and its API keys, as far as they exist. Reads
    only, and takes no lock: another process may serve the ledger. Raises SetupError."""
    if settings.server.database_url is None:
        from fairlane.ledger.sqlite.probe import probe

        return probe(settings.server.ledger)
    from fairlane.ledger.postgres.probe import probe as probe_server

    return await probe_server(settings.server.database_url)


async def index_server(settings: Settings) -> IndexServer | None:
    """The server behind the index of these settings; None if the index is in the process. Raises
    StoreAway."""
    if settings.server.redis_url is None or settings.server.database_url is None:
        return None
    from fairlane.index.redis.server_state import server_at

    return await server_at(settings.server.redis_url)


async def embedded(
    catalog: Catalog,
    path: Path,
    *,
    clock: Clock | None = None,
    sweeping: bool = True,
    seed: int | None = None,
    connection: type[sqlite3.Connection] = sqlite3.Connection,
) -> Engine:
    """One process, one file, nothing to install. Start it with `async with`."""
    ledger = await SqliteLedger.open(path, connection)
    clock = clock or SystemClock(ledger.last_seen)
    return Engine(ledger, MemoryIndex(catalog, clock), catalog, clock, sweeping=sweeping, seed=seed)


async def shared(
    catalog: Catalog,
    database: str,
    *,
    clock: Clock | None = None,
    sweeping: bool = True,
    seed: int | None = None,
    unsafe: bool = False,
    migrating: bool = True,
    alone: bool = True,
) -> Engine:
    """The ledger in PostgreSQL, the index in this process, which must be the only one. Start it
    with `async with`. Needs the extra `cluster`."""
    from fairlane.ledger.postgres import PostgresLedger

    ledger = await PostgresLedger.open(database, unsafe=unsafe, migrating=migrating, alone=alone)
    clock = clock or await ledger.started_clock()
    return Engine(ledger, MemoryIndex(catalog, clock), catalog, clock, sweeping=sweeping, seed=seed)


async def cluster(  # noqa: PLR0913 - each has a default that fits
    catalog: Catalog,
    database: str,
    redis: str,
    *,
    clock: Clock | None = None,
    sweeping: bool = True,
    seed: int | None = None,
    prefix: str | None = None,
    unsafe: bool = False,
    migrating: bool = True,
) -> Engine:
    """The ledger in PostgreSQL, the index in Redis: any number of processes share the queue. Start
    it with `async with`. Needs the extra `cluster`."""
    from fairlane.index.redis import RedisIndex
    from fairlane.index.redis.keys import KEY_PREFIX
    from fairlane.ledger.postgres import PostgresLedger

    ledger = await PostgresLedger.open(database, unsafe=unsafe, migrating=migrating)
    try:
        clock = clock or await ledger.started_clock()
        index = RedisIndex(catalog, clock, redis, prefix=prefix or KEY_PREFIX)
        try:
            await index.check()
        except BaseException:
            await index.close()
            raise
    except BaseException:
        await ledger.close()
        raise
    return Engine(ledger, index, catalog, clock, sweeping=sweeping, seed=seed)
