"""The SQLite ledger: the system of record in one file, owned by one process, with nothing to
install."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from fairlane.errors import SetupError
from fairlane.ledger.job_columns import read_job
from fairlane.ledger.messages import Submission, SubmitOutcome, Unwritten, WrittenOrNot
from fairlane.ledger.sql_ledger import SqlLedger
from fairlane.ledger.sqlite import (
    admin,
    api_keys,
    bulk_actions,
    confirm,
    credits,
    end_jobs,
    epochs,
    job_actions,
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
from fairlane.ledger.sqlite.checkpoint import Checkpoints
from fairlane.ledger.sqlite.connect import Ownership, connect, demand_room, explained, made_ready
from fairlane.ledger.sqlite.migrate import migrate
from fairlane.ledger.sqlite.writer import SqliteWriter
from fairlane.model.job import Job

T = TypeVar("T")


class SqliteLedger(SqlLedger):
    shared, alone = False, True
    _writer: SqliteWriter
    _queries, _admin, _api_keys, _confirm = queries, admin, api_keys, confirm
    _credits, _epochs, _job_actions, _known_tiers = credits, epochs, job_actions, known_tiers
    _end_jobs = end_jobs
    _leases, _outbox, _retention, _settle = leases, outbox, retention, settle
    _store_stats, _submit, _webhooks = store_stats, submit, webhooks
    _key_users, _bulk_actions = key_users, bulk_actions

    def __init__(self, path: Path, ownership: Ownership, connection: sqlite3.Connection) -> None:
        self._path, self._ownership, self._connection = path, ownership, connection
        self._closed = False
        self._last_seen = queries.last_seen(connection)
        self._reading = connect(path)
        self._checkpoints = Checkpoints(path)
        try:
            writer = SqliteWriter(connection, self._checkpoints.wrote)
        except BaseException:
            self._checkpoints.close()
            self._reading.close()
            raise
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="fairlane-reader")
        super().__init__(writer)

    @classmethod
    async def open(
        cls, path: Path, factory: type[sqlite3.Connection] = sqlite3.Connection
    ) -> SqliteLedger:
        """Take ownership of the file, or raise an error that names its owner. Creates and migrates
        the file as needed."""
        path = made_ready(path)
        ownership = Ownership(path)
        try:
            connection = connect(path, factory)
            try:
                migrate(connection)
                return cls(path, ownership, connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            ownership.release()
            raise explained(path, error) from error
        except BaseException:
            ownership.release()
            raise

    def explain(self, error: Exception) -> SetupError | None:
        return explained(self._path, error) if isinstance(error, sqlite3.Error) else None

    async def close(self) -> None:
        self._closed = True
        await self._writer.close()
        self._checkpoints.close()
        self._reader.shutdown()
        self._reading.close()
        self._connection.close()
        self._ownership.release()

    @property
    def last_seen(self) -> int:
        """The latest time stored in the file when it was opened; the clock must not go back behind
        it."""
        return self._last_seen

    @property
    def queued(self) -> int:
        """The number of queued jobs, as the writer counts them."""
        return self._writer.tally.queued

    async def submit(self, items: Sequence[Submission]) -> WrittenOrNot[SubmitOutcome | Unwritten]:
        written: WrittenOrNot[Any] = await self._writer.admit(submit.submit, items)
        return written

    async def extend_rebuild(self, life: str, *, done: bool = False) -> bool:  # noqa: ARG002
        """Report a rebuild. The file belongs to one process, so no other process needs a
        heartbeat."""
        return (await self._read(epochs.stamp)).life == life

    async def live(self, page: int) -> AsyncGenerator[list[Job], None]:
        connection = await self._in_reader(connect, self._path)
        try:
            cursor = await self._in_reader(connection.execute, queries.LIVE)
            while found := await self._in_reader(_jobs, cursor, page):
                yield found
        finally:
            await self._in_reader(connection.close)

    async def load(self) -> tuple[int, int]:
        return self._writer.tally.queued, await self._read(queries.running)

    async def _try_to_write(self) -> None:
        await self._in_reader(demand_room, self._path)
        await self._one(store_stats.try_to_write, None)

    # --- threads -----------------------------------------------------------------------------
    async def _read(self, query: Callable[..., T], *args: object) -> T:
        return await self._in_reader(query, self._reading, *args)

    async def _in_reader(self, function: Callable[..., T], *args: object) -> T:
        if self._closed:
            raise SetupError("the ledger is closed")
        return await asyncio.get_running_loop().run_in_executor(self._reader, function, *args)


def _jobs(cursor: sqlite3.Cursor, page: int) -> list[Job]:
    return [read_job(row) for row in cursor.fetchmany(page)]
