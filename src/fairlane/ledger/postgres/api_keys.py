"""API keys in PostgreSQL, shared by all processes."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.api_keys import (
    COLUMNS,
    ApiKeyVerbs,
    KeyAddition,
    KeyRedemption,
    KeyRevocation,
    audit_text,
    key_of,
    values,
)
from fairlane.ledger.messages import AuditedChange
from fairlane.ledger.postgres.admin import CHANGES_LOCK, LOCK, audited
from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.model.key import Key


async def _add(tx: PostgresTransaction, items: Sequence[KeyAddition]) -> list[bool]:
    """Idempotent: a key with the same hash is the same key, perhaps after a commit whose response
    was lost."""
    await tx.execute(LOCK, CHANGES_LOCK)
    done = []
    for key, actor in items:
        marks = ", ".join(f"${n + 1}" for n in range(len(values(key))))
        added = await tx.fetchval(
            f"INSERT INTO keys ({COLUMNS}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING "
            "RETURNING 1",
            *values(key),
        )
        if added:
            change = AuditedChange(key.created_at, actor, "add key", key.id, None, audit_text(key))
            await audited(tx, change)
        known = await tx.fetchval("SELECT hash FROM keys WHERE id = $1", key.id)
        done.append(known == key.hash)
    return done


async def _revoke(tx: PostgresTransaction, items: Sequence[KeyRevocation]) -> list[bool]:
    await tx.execute(LOCK, CHANGES_LOCK)
    done = []
    for key, now, actor in items:
        found = await tx.fetchrow("SELECT revoked_at FROM keys WHERE id = $1", key)
        done.append(found is not None)
        if found is not None and found[0] is None:
            await tx.execute("UPDATE keys SET revoked_at = $1 WHERE id = $2", now, key)
            await audited(tx, AuditedChange(now, actor, "revoke key", key, None, None))
    return done


async def _get(connection: Connection, key: str) -> Key | None:
    row = await connection.fetchrow(f"SELECT {COLUMNS} FROM keys WHERE id = $1", key)
    return None if row is None else key_of(tuple(row))


async def _page(connection: Connection, after: str | None, limit: int) -> list[Key]:
    found = await connection.fetch(
        f"SELECT {COLUMNS} FROM keys WHERE $1::text IS NULL OR (created_at, id) > "
        "(SELECT created_at, id FROM keys WHERE id = $1) ORDER BY created_at, id LIMIT $2",
        after,
        limit,
    )
    return [key_of(tuple(row)) for row in found]


async def _names(connection: Connection, most: int) -> frozenset[str]:
    return frozenset(row[0] for row in await connection.fetch("SELECT id FROM keys LIMIT $1", most))


async def _any(connection: Connection) -> bool:
    return await connection.fetchval("SELECT 1 FROM keys LIMIT 1") is not None


async def _secret(tx: PostgresTransaction, items: Sequence[str]) -> list[str]:
    for item in items:
        await tx.execute("UPDATE meta SET value = $1 WHERE name = 'secret' AND value = ''", item)
    found: str = await tx.fetchval("SELECT value FROM meta WHERE name = 'secret'")
    return [found] * len(items)


RUN_OUT = """
DELETE FROM tickets WHERE id IN (
    SELECT id FROM tickets WHERE until <= $1 FOR UPDATE SKIP LOCKED)
"""


async def _redeem(tx: PostgresTransaction, items: Sequence[KeyRedemption]) -> list[bool]:
    done: dict[int, bool] = {}
    for i, (ticket, until, now) in sorted(enumerate(items), key=lambda each: each[1].ticket):
        await tx.execute(RUN_OUT, now)
        added = await tx.fetchval(
            "INSERT INTO tickets (id, until) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING "
            "RETURNING 1",
            ticket,
            until,
        )
        done[i] = added is not None
    return [done[i] for i in range(len(items))]


async def _redeemed(connection: Connection, ticket: str) -> bool:
    return await connection.fetchval("SELECT 1 FROM tickets WHERE id = $1", ticket) is not None


VERBS = ApiKeyVerbs(_add, _revoke, _get, _page, _names, _any, _secret, _redeem, _redeemed)
