"""Connections that only look."""

from __future__ import annotations

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from asyncpg.transaction import Transaction as Snapshot

Connection = asyncpg.Connection | PoolConnectionProxy


def snapshot(connection: Connection) -> Snapshot:
    """Everything read inside it is of one moment."""
    return connection.transaction(isolation="repeatable_read", readonly=True)
