"""The process lock: an advisory lock that a process holds while it uses the database, and the
heartbeat of that connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Self

import asyncpg

from fairlane.background import end
from fairlane.errors import LedgerInUse
from fairlane.ledger.postgres.connect import plain, session_options
from fairlane.ledger.postgres.silent_connections import SILENT, WatchedConnections

log = logging.getLogger("fairlane")

PROCESS_LOCK = 4216
"""Advisory lock: a process with its own index holds it exclusively, other processes share it."""

TRIES, REST = 20, 0.1

CHECK_SECONDS = 0.5
"""Seconds between two checks that the server answers and the lock still holds. The lock ends with
its connection."""

LOOKS = 3
"""How many times a check waits `CHECK_SECONDS` for an answer. Several short waits, so that a
process that was stopped finds the answer that came meanwhile in the next wait."""

CONNECT_WITHIN = 1.0
"""Seconds for a new connection, and for each answer on it, after the server went away."""

LOST = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.TargetServerAttributeNotMatched,
)


class ProcessLock:
    """A lock on a connection of its own. It is taken again after an outage of the server. If
    another process took the lock meanwhile, `refusal` is the error to raise until that process has
    ended; also while the server does not answer.

    A pooler gives a session to a client for one transaction only. There the lock belongs to a
    transaction that stays open. Between two checks it holds no snapshot, so it does not keep the
    server from removing dead rows."""

    def __init__(
        self, url: str, *, alone: bool, connection: asyncpg.Connection, watched: WatchedConnections
    ) -> None:
        self._in_use = ""
        self._url, self.alone, self._connection = url, alone, connection
        self._watched = watched
        self._silent_since = 0.0
        self._watch = asyncio.create_task(self._keep())

    @classmethod
    async def taken(cls, url: str, *, alone: bool, watched: WatchedConnections) -> Self:
        """Take the lock. Raises LedgerInUse if this process, or one that holds the lock, must be
        alone."""
        connection = await _locked(url, alone=alone, watched=watched)
        return cls(url, alone=alone, connection=connection, watched=watched)

    @property
    def refusal(self) -> Exception | None:
        if self._watched.silent.is_set():
            return ConnectionError(SILENT)
        return LedgerInUse(self._in_use) if self._in_use else None

    async def close(self) -> None:
        await end(self._watch)
        try:
            await self._connection.close(timeout=CONNECT_WITHIN)
        except (*LOST, TimeoutError):
            self._connection.terminate()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(REST if self._watched.silent.is_set() else CHECK_SECONDS)
            if not await self._answers():
                self._connection.terminate()
                with contextlib.suppress(*LOST):  # the server is still unavailable
                    await self._take_again()

    async def _answers(self) -> bool:
        """Whether the connection works. If the server does not answer, all connections are
        closed."""
        if self._connection.is_closed():
            return False
        look = asyncio.create_task(self._look())
        try:
            for _ in range(LOOKS):
                await asyncio.wait([look], timeout=CHECK_SECONDS)
                if look.done():
                    return look.exception() is None
        finally:
            look.cancel()
        self._mark_silent()
        return False

    async def _look(self) -> None:
        """Ask the server whether it still works on statements that have waited long."""
        if self._watched.pooled:
            await self._connection.execute("SELECT 1")
            return
        own, suspects = self._connection.get_server_pid(), self._watched.suspects()
        found = await self._connection.fetch(
            "SELECT pid, state FROM pg_stat_activity WHERE pid = ANY($1::int[])", [own, *suspects]
        )
        self._watched.close_lost(suspects, [(row[0], row[1]) for row in found])
        await _end_orphaned_sessions(self._connection, self._watched)

    def _mark_silent(self) -> None:
        """Mark the server as silent: no caller waits for it, until it answers a new connection."""
        if not self._watched.silent.is_set():
            self._silent_since = asyncio.get_running_loop().time()
            log.warning("PostgreSQL does not answer: its connections are closed and tried anew")
        if not self._connection.is_closed():
            self._watched.left.add(self._connection.get_server_pid())
        self._watched.close_all()

    async def _take_again(self) -> None:
        try:
            self._connection = await _locked(
                self._url, alone=self.alone, watched=self._watched, within=CONNECT_WITHIN
            )
        except TimeoutError:
            self._mark_silent()
        except LedgerInUse as error:
            if not self._in_use:
                log.critical("nothing is done until they have gone: %s", error)
            self._in_use = str(error)
            self._watched.silent.clear()
        else:
            if self._watched.silent.is_set():
                lasted = asyncio.get_running_loop().time() - self._silent_since
                log.warning("PostgreSQL answers again, %.1f s after it was given up", lasted)
            self._in_use = ""
            self._watched.silent.clear()


async def _locked(
    url: str, *, alone: bool, watched: WatchedConnections, within: float | None = None
) -> asyncpg.Connection:
    """A connection that holds the lock."""
    options = session_options(pooled=watched.pooled)
    connection: asyncpg.Connection = await asyncpg.connect(
        plain(url), timeout=within or 60, command_timeout=within, **options
    )
    try:
        if watched.pooled:
            await connection.execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0")
        else:
            await _end_orphaned_sessions(connection, watched)
        if await _has_lock(connection, alone=alone, pooled=watched.pooled):
            return connection
    except BaseException:
        connection.terminate()
        raise
    await connection.close()
    raise LedgerInUse(
        "other processes work on this database, and without Redis one must be alone with it"
        if alone
        else "a process without Redis works on this database: it must be alone with it"
    )


async def _end_orphaned_sessions(
    connection: asyncpg.Connection, watched: WatchedConnections
) -> None:
    """End sessions that this process closed without the server noticing, which frees their
    locks."""
    if watched.left:
        left = [*watched.left]
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
            await connection.execute(END_LEFT, left)
        watched.left.difference_update(left)


END_LEFT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = ANY($1::int[]) AND pid <> pg_backend_pid() AND usename = current_user
    AND datname = current_database() AND application_name = current_setting('application_name')
"""


async def _has_lock(connection: asyncpg.Connection, *, alone: bool, pooled: bool) -> bool:
    """Try to get the lock, several times: a process that has just ended may still hold it."""
    lock = "pg_try_advisory_xact_lock" if pooled else "pg_try_advisory_lock"
    lock += "" if alone else "_shared"
    for _ in range(TRIES):
        if await connection.fetchval(f"SELECT {lock}($1)", PROCESS_LOCK):
            return True
        await asyncio.sleep(REST)
    return False
