"""The PostgreSQL ledger: the system of record that any number of processes share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from time import perf_counter
from typing import Any

import asyncpg

from fairlane.errors import SetupError
from fairlane.ledger.job_columns import read_job
from fairlane.ledger.postgres import (
    admin,
    api_keys,
    bulk_actions,
    confirm,
    credits,
    end_jobs,
    epochs,
    job_actions,
    job_lists,
    key_users,
    known_tiers,
    leases,
    outbox,
    queries,
    retention,
    settle,
    store_stats,
    submit,
    webhooks,
)
from fairlane.ledger.postgres.connect import connect, demand_durable, explained
from fairlane.ledger.postgres.migrate import demand_schema, migrate
from fairlane.ledger.postgres.process_lock import ProcessLock
from fairlane.ledger.postgres.read_connection import snapshot
from fairlane.ledger.postgres.shared_clock import SharedClock
from fairlane.ledger.postgres.silent_connections import WatchedConnections
from fairlane.ledger.postgres.writer import PostgresWriter
from fairlane.ledger.sql_ledger import SqlLedger
from fairlane.model.job import Job
from fairlane.model.lease import Lease

CONNECTIONS = 10

CLOSE_WITHIN = 5.0
"""Seconds that a server has to close its connections."""

MAX_LIST_CLEANUPS = 100
"""The most transactions per run that remove finished jobs from the lists of live jobs."""


class PostgresLedger(SqlLedger):
    shared = True
    _writer: PostgresWriter
    _queries, _admin, _api_keys, _confirm = queries, admin, api_keys, confirm
    _credits, _epochs, _job_actions, _known_tiers = credits, epochs, job_actions, known_tiers
    _end_jobs = end_jobs
    _leases, _outbox, _retention, _settle = leases, outbox, retention, settle
    _store_stats, _submit, _webhooks = store_stats, submit, webhooks
    _key_users, _bulk_actions = key_users, bulk_actions

    def __init__(self, pool: asyncpg.Pool, presence: ProcessLock) -> None:
        self._pool, self._presence, self._closed = pool, presence, False
        self.alone = presence.alone
        super().__init__(PostgresWriter(pool, refusal=lambda: presence.refusal))
        self.clock = SharedClock(self._read_clock, self._set_clock)

    @classmethod
    async def open(
        cls, url: str, *, unsafe: bool = False, alone: bool = False, migrating: bool = True
    ) -> PostgresLedger:
        """Connect, and migrate the schema as needed, or only require it. `unsafe` accepts a server
        that may lose jobs; `alone` accepts no other process on this database."""
        watched = WatchedConnections()
        pool = await connect(url, most=CONNECTIONS, watched=watched)
        try:
            if not unsafe:
                await demand_durable(pool)
            await (migrate(pool) if migrating else demand_schema(pool))
            return cls(pool, await ProcessLock.taken(url, alone=alone, watched=watched))
        except BaseException:
            pool.terminate()
            raise

    async def started_clock(self) -> SharedClock:
        """The clock that all processes on this ledger share."""
        await self.clock.start()
        return self.clock

    async def close(self) -> None:
        self._closed = True
        await self.clock.stop()
        await self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_WITHIN):
                await self._pool.close()
        except TimeoutError:  # the server does not answer
            self._pool.terminate()
        await self._presence.close()

    def explain(self, error: Exception) -> SetupError | None:
        return explained(error)

    async def expired(self, now: int, reached: int, limit: int) -> list[Lease]:
        if not await self._read(queries.is_due, now):
            return []
        await self._one(job_lists.inspect_leased, now)
        return await super().expired(now, reached, limit)

    async def live(self, page: int) -> AsyncGenerator[list[Job], None]:
        async with self._pool.acquire() as connection, snapshot(connection):
            await connection.execute(queries.TAKE_TIME)
            await connection.execute(queries.DECLARE_LIVE)
            while found := await connection.fetch(f"FETCH {page} FROM live"):
                yield [read_job(tuple(row)) for row in found]

    async def load(self) -> tuple[int, int]:
        queued, running = await self._read(queries.load)
        return queued, running

    async def retire(
        self, finished_before: int, dead_before: int, keys_before: int, limit: int
    ) -> int:
        for _ in range(MAX_LIST_CLEANUPS):
            if not await self._one(job_lists.inspect_live, limit):
                break
        return await super().retire(finished_before, dead_before, keys_before, limit)

    async def _try_to_write(self) -> None:
        """Raise the last disk-full error for a few seconds, otherwise make a test write. The test
        write alone would miss a full disk: updating a row needs no space."""
        full = self._writer.full_lately()
        if full is not None:
            raise full
        await self._one(store_stats.try_to_write, None)

    async def _read_clock(self) -> tuple[int, str]:
        wall, agreed = await self._read(epochs.read_clock)
        return wall, agreed

    async def _set_clock(self, old: str, new: str) -> bool:
        return await self._one(epochs.set_clock, (old, new))

    async def _read(self, query: Callable[..., Any], *args: object) -> Any:
        if self._closed:
            raise SetupError("the ledger is closed")
        if (refusal := self._presence.refusal) is not None:
            raise refusal
        began = perf_counter()
        async with self._pool.acquire() as connection:
            self._writer.waits.observe(perf_counter() - began)
            return await query(connection, *args)
