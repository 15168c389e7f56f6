"""What a soak samples: memory and descriptors of processes, and the sizes of their stores."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import asyncpg
import redis.asyncio

MEGABYTE = 1e6
TICKS = os.sysconf("SC_CLK_TCK")
COUNT = 'SELECT count(*) FROM "{}"'
LIVE = "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')"

TABLES = """
SELECT relname, pg_table_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup
FROM pg_stat_user_tables WHERE schemaname = 'fairlane'
"""
WAL = "SELECT sum(size), pg_current_wal_lsn() - '0/0' FROM pg_ls_waldir()"


@dataclass(frozen=True)
class ProcessSample:
    """`private` is the part of the resident memory that belongs to no file and is not shared."""

    memory: float
    private: float
    descriptors: int
    cpu: float


@dataclass(frozen=True)
class Sample:
    """`at`: seconds since the load began. `sizes`: by name, megabytes or a number."""

    at: float
    processes: Mapping[str, ProcessSample]
    sizes: Mapping[str, float]


def process_sample(pid: int) -> ProcessSample:
    status = Path(f"/proc/{pid}/status").read_text()

    def megabytes(name: str) -> float:
        found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) * 1024 / MEGABYTE if found else 0.0

    return ProcessSample(
        megabytes("VmRSS"),
        megabytes("RssAnon"),
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        cpu_seconds(pid),
    )


def cpu_seconds(pid: int) -> float:
    with suppress(OSError):
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / TICKS
    return 0.0


class Stores(Protocol):
    async def sizes(self) -> dict[str, float]: ...

    async def rows(self) -> dict[str, int]:
        """The number of rows of each table, counted."""
        ...

    async def live_jobs(self) -> int: ...


class FileStores:
    """The ledger of an embedded server, read beside it."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    async def sizes(self) -> dict[str, float]:
        log = self._ledger.with_name(self._ledger.name + "-wal")
        with closing(self._connect()) as connection:
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            (page,) = connection.execute("PRAGMA page_size").fetchone()
        return {
            "ledger file, MB": self._ledger.stat().st_size / MEGABYTE,
            "ledger file in use, MB": (self._ledger.stat().st_size - free * page) / MEGABYTE,
            "write-ahead log, MB": log.stat().st_size / MEGABYTE if log.exists() else 0.0,
        }

    async def rows(self) -> dict[str, int]:
        with closing(self._connect()) as connection:
            tables = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            ).fetchall()
            return {
                name: connection.execute(COUNT.format(name)).fetchone()[0] for (name,) in tables
            }

    async def live_jobs(self) -> int:
        with closing(self._connect()) as connection:
            return int(connection.execute(LIVE).fetchone()[0])

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self._ledger}?mode=ro", uri=True, timeout=30)


class ServerStores:
    """PostgreSQL and Redis."""

    def __init__(self, connection: asyncpg.Connection, index: redis.asyncio.Redis) -> None:
        self._connection, self._index = connection, index

    async def sizes(self) -> dict[str, float]:
        tables = await self._connection.fetch(TABLES)
        wal, written = await self._connection.fetchrow(WAL) or (0, 0)
        memory = await self._index.info("memory")
        jobs = next(row for row in tables if row["relname"] == "jobs")
        return {
            "tables, MB": sum(row["pg_table_size"] for row in tables) / MEGABYTE,
            "indexes, MB": sum(row["pg_indexes_size"] for row in tables) / MEGABYTE,
            "table jobs, MB": jobs["pg_table_size"] / MEGABYTE,
            "dead tuples": sum(row["n_dead_tup"] for row in tables),
            "live tuples": sum(row["n_live_tup"] for row in tables),
            "WAL files, MB": float(wal) / MEGABYTE,
            "WAL written, MB": float(written) / MEGABYTE,
            "Redis memory, MB": memory["used_memory"] / MEGABYTE,
            "Redis keys": await self._index.dbsize(),
        }

    async def rows(self) -> dict[str, int]:
        found = {}
        for row in await self._connection.fetch(TABLES):
            name = row["relname"]
            found[name] = await self._connection.fetchval(COUNT.format(name))
        return found

    async def live_jobs(self) -> int:
        return int(await self._connection.fetchval(LIVE))
