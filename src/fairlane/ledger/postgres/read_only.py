"""Reads a ledger that other processes use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from fairlane.ledger.postgres.connect import connect, demand_schema
from fairlane.ledger.postgres.read_verbs import PostgresReadVerbs

T = TypeVar("T")


class PostgresReadOnly(PostgresReadVerbs):
    """Writes nothing, so it may be there while somebody is alone with the ledger."""

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

    async def _read(self, query: Callable[..., Awaitable[T]], *args: object) -> T:
        async with self._pool.acquire() as connection:
            return await query(connection, *args)

    async def close(self) -> None:
        await self._pool.close()
