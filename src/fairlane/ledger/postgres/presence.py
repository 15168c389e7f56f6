"""Telling other processes that this one works on the database, for as long as it does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Self

import asyncpg

from fairlane.background import end
from fairlane.errors import LedgerInUse
from fairlane.ledger.postgres.connect import SETTINGS, plain

log = logging.getLogger("fairlane")

PRESENT = 4216
"""Advisory lock: processes with an index of their own hold it alone, others share it."""

TRIES, REST = 20, 0.1

LOOK = 1.0
"""Seconds between two looks whether the lock still holds: it goes with its connection."""

ANSWER_WITHIN = 5.0


class Presence:
    """A lock on a connection of its own, which is taken again when the server was away. Meanwhile
    somebody else may have come: `refusal` is what is to be said then, until they have gone."""

    def __init__(self, url: str, *, alone: bool, connection: asyncpg.Connection) -> None:
        self.refusal: LedgerInUse | None = None
        self._url, self.alone, self._connection = url, alone, connection
        self._watch = asyncio.create_task(self._keep())

    @classmethod
    async def taken(cls, url: str, *, alone: bool) -> Self:
        """Raises LedgerInUse if this process, or one that is there, has to be alone."""
        return cls(url, alone=alone, connection=await _locked(url, alone=alone))

    async def close(self) -> None:
        await end(self._watch)
        await self._connection.close()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._connection.execute("SELECT 1", timeout=ANSWER_WITHIN)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                self._connection.terminate()
                with contextlib.suppress(OSError, asyncpg.PostgresError):  # it is still away
                    await self._take_again()

    async def _take_again(self) -> None:
        try:
            self._connection = await _locked(self._url, alone=self.alone)
        except LedgerInUse as error:
            if self.refusal is None:
                log.critical("nothing is done until they have gone: %s", error)
            self.refusal = error
        else:
            self.refusal = None


async def _locked(url: str, *, alone: bool) -> asyncpg.Connection:
    """A connection that holds the lock."""
    connection = await asyncpg.connect(plain(url), server_settings=SETTINGS)
    try:
        if await _has_lock(connection, alone=alone):
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


async def _has_lock(connection: asyncpg.Connection, *, alone: bool) -> bool:
    """A process that just went may not be gone yet."""
    lock = "pg_try_advisory_lock" if alone else "pg_try_advisory_lock_shared"
    for _ in range(TRIES):
        if await connection.fetchval(f"SELECT {lock}($1)", PRESENT):
            return True
        await asyncio.sleep(REST)
    return False
