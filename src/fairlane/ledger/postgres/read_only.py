"""A read-only view of a ledger that other processes use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg

from fairlane.ledger.postgres import queries
from fairlane.ledger.postgres.connect import connect
from fairlane.ledger.postgres.migrate import demand_schema
from fairlane.ledger.sql_ledger import SqlReader


class PostgresReadOnly(SqlReader):
    """A ledger that writes nothing and takes no process lock, so it works beside a process that
    must be alone."""

    _queries = queries

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str) -> PostgresReadOnly:
        pool = await connect(url, most=1)
        try:
            await demand_schema(pool)
        except BaseException:
            pool.terminate()
            raise
        return cls(pool)

    async def _read(self, query: Callable[..., Any], *args: object) -> Any:
        async with self._pool.acquire() as connection:
            return await query(connection, *args)

    async def close(self) -> None:
        await self._pool.close()
