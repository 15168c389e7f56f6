"""From settings to a wired engine: the only place that names a ledger or an index."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fairlane.clock import Clock, SystemClock
from fairlane.engine.engine import Engine
from fairlane.index.memory import MemoryIndex
from fairlane.ledger.sqlite import SqliteLedger
from fairlane.model.catalog import Catalog


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
    alone: bool = True,
) -> Engine:
    """The ledger in PostgreSQL, the index in this process, which must be the only one. Start it
    with `async with`. Needs the extra `cluster`."""
    from fairlane.ledger.postgres import PostgresLedger

    ledger = await PostgresLedger.open(database, unsafe=unsafe, alone=alone)
    clock = clock or await ledger.started_clock()
    return Engine(ledger, MemoryIndex(catalog, clock), catalog, clock, sweeping=sweeping, seed=seed)


async def cluster(
    catalog: Catalog,
    database: str,
    redis: str,
    *,
    clock: Clock | None = None,
    sweeping: bool = True,
    seed: int | None = None,
    prefix: str = "{fairlane}:",
    unsafe: bool = False,
) -> Engine:
    """The ledger in PostgreSQL, the index in Redis: any number of processes share the queue. Start
    it with `async with`. Needs the extra `cluster`."""
    from fairlane.index.redis import RedisIndex
    from fairlane.ledger.postgres import PostgresLedger

    ledger = await PostgresLedger.open(database, unsafe=unsafe)
    try:
        clock = clock or await ledger.started_clock()
        index = RedisIndex(catalog, clock, redis, prefix=prefix)
        try:
            await index.check()
        except BaseException:
            await index.close()
            raise
    except BaseException:
        await ledger.close()
        raise
    return Engine(ledger, index, catalog, clock, sweeping=sweeping, seed=seed)
