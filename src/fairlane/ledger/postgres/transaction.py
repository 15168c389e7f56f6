"""The transaction that a ledger operation writes with (unit of work)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from fairlane.ledger.postgres.read_connection import Connection

Row = asyncpg.Record


class PostgresTransaction:
    """One open transaction. Jobs that an operation marks as touched are named in the outbox. An
    operation that queues or dequeues jobs reports it with `line`, one that starts or stops them
    with `running`."""

    __slots__ = (
        "execute",
        "executemany",
        "fetch",
        "fetchrow",
        "fetchval",
        "line",
        "running",
        "savepoint",
        "touched",
    )

    def __init__(self, connection: Connection) -> None:
        self.execute, self.executemany = connection.execute, connection.executemany
        self.fetch, self.fetchrow = connection.fetch, connection.fetchrow
        self.fetchval = connection.fetchval
        self.savepoint = connection.transaction
        self.touched: list[str] = []
        self.line = self.running = 0


Reader = PostgresTransaction | Connection
"""Reads need no transaction."""

Verb = Callable[[PostgresTransaction, Sequence[Any]], Awaitable[list[Any]]]
"""Writes each item, in order, and returns as many outcomes."""

AT_ONCE, AT_ONCE_A_VERB = 6, 2
"""Open transactions of a process at most, in total and for each operation."""

MAX_TRANSACTION_ITEMS = 2000
"""Items that share one transaction, unless a single call brings more."""

SETTINGS_LOCK = 4217
"""Advisory lock: claims share it; a change of limits or of the epoch takes it exclusively."""

QUEUE_LOCK = 4218
"""Advisory lock: submits are serialized by it while the queue is almost full."""
