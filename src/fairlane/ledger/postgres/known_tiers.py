"""Last known tiers in PostgreSQL (cache table)."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.known_tiers import KnownTier, TierVerbs
from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.transaction import PostgresTransaction


async def _known(connection: Connection, tenant: str, users: Sequence[str]) -> dict[str, str]:
    found = await connection.fetch(
        "SELECT username, tier FROM known_tiers WHERE tenant = $1 AND username = ANY($2::text[])",
        tenant,
        users,
    )
    return {row[0]: row[1] for row in found}


KNOW = Statement("""
INSERT INTO known_tiers VALUES (:tenant, :username, :tier, :now)
ON CONFLICT (tenant, username) DO UPDATE SET tier = :tier, learnt_at = :now
""")


async def _know(tx: PostgresTransaction, items: Sequence[KnownTier]) -> list[None]:
    told = [row for item in items for row in item.rows]
    for row in sorted(told, key=lambda row: (row[0], row[1], row[3])):  # locked in one order
        tenant, username, tier, now = row
        await tx.execute(*KNOW(tenant=tenant, username=username, tier=tier, now=now))
    return [None] * len(items)


VERBS = TierVerbs(_known, _know)
