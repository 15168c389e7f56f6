"""What the gateway keeps beside jobs: what was said about users, and webhooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fairlane.ledger import gateway
from fairlane.ledger.gateway import Again, NewSecret, Over, listed, webhook
from fairlane.ledger.postgres.reading import Connection
from fairlane.ledger.postgres.transaction import Transaction
from fairlane.ledger.postgres.writer import Writer
from fairlane.model.webhook import Delivery, Webhook

Read = Callable[..., Awaitable[Any]]
WEBHOOK = gateway.WEBHOOK.replace(" user,", " username,")


class PostgresKnownTiers:
    def __init__(self, writer: Writer, read: Read) -> None:
        self._writer, self._read = writer, read

    async def get(self, tenant: str, users: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = await self._read(_known, tenant, users)
        return found

    async def put(self, tenant: str, tiers: Mapping[str, str], now: int) -> None:
        rows = [(tenant, user, tiers[user], now) for user in sorted(tiers)]
        await self._writer.write(_know, rows)


async def _known(connection: Connection, tenant: str, users: Sequence[str]) -> dict[str, str]:
    found = await connection.fetch(
        "SELECT username, tier FROM known_tiers WHERE tenant = $1 AND username = ANY($2::text[])",
        tenant,
        users,
    )
    return {row[0]: row[1] for row in found}


async def _know(tx: Transaction, items: Sequence[tuple[str, str, str, int]]) -> list[None]:
    for item in sorted(items):  # rows are locked in one order
        await tx.execute(
            "INSERT INTO known_tiers VALUES ($1, $2, $3, $4) "
            "ON CONFLICT (tenant, username) DO UPDATE SET tier = $3, learnt_at = $4",
            *item,
        )
    return [None] * len(items)


class PostgresWebhooks:
    def __init__(self, writer: Writer, read: Read) -> None:
        self._writer, self._read = writer, read

    async def due(self, now: int, hold_until: int, limit: int) -> list[Webhook]:
        if not await self._read(_any_due, now):
            return []
        return (await self._writer.write(_due, [(now, hold_until, limit)])).outcomes[0]

    async def again(self, webhook: str, tries: int, at: int) -> None:
        await self._writer.write(_again, [Again(webhook, tries, at)])

    async def over(self, webhook: str, how: Delivery, now: int) -> None:
        await self._writer.write(_over, [Over(webhook, how, now)])

    async def listed(self, limit: int) -> list[tuple[Webhook, Delivery | None]]:
        return listed(await self._read(_listed, limit))

    async def forget(self, before: int, limit: int) -> int:
        return (await self._writer.write(_forget, [(before, limit)])).outcomes[0]

    async def secrets(self, tenant: str, now: int) -> list[str]:
        found: list[str] = await self._read(_secrets, tenant, now)
        return found

    async def first_secret(self, tenant: str, secret: str, now: int) -> None:
        await self._writer.write(_keep_secret, [NewSecret(tenant, secret, now, None)])

    async def new_secret(self, tenant: str, secret: str, now: int, old_until: int) -> None:
        await self._writer.write(_keep_secret, [NewSecret(tenant, secret, now, old_until)])


async def _any_due(connection: Connection, now: int) -> bool:
    """Asking often must not cost a commit."""
    found = await connection.fetchval("SELECT 1 FROM webhooks WHERE due_at <= $1 LIMIT 1", now)
    return found is not None


UNWANTED = """
UPDATE webhooks SET due_at = NULL, outcome = 'gone', over_at = $1 WHERE id IN (
    SELECT id FROM webhooks late WHERE late.due_at <= $1 AND EXISTS (
        SELECT 1 FROM webhooks gone WHERE gone.outcome = 'gone' AND gone.tenant = late.tenant
        AND gone.url = late.url)
    FOR UPDATE SKIP LOCKED)
"""
DUE = f"""
UPDATE webhooks SET due_at = $2 WHERE id IN (
    SELECT id FROM webhooks due WHERE due.due_at <= $1 AND NOT EXISTS (
        SELECT 1 FROM webhooks first WHERE first.due_at IS NOT NULL AND first.job = due.job
        AND first.rev < due.rev)
    ORDER BY due.due_at LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING {WEBHOOK}
"""


async def _due(tx: Transaction, items: Sequence[tuple[int, int, int]]) -> list[list[Webhook]]:
    """What another process has just taken is locked or no longer due."""
    found = []
    for now, hold_until, limit in items:
        await tx.execute(UNWANTED, now)
        rows = await tx.fetch(DUE, now, hold_until, limit)
        found.append([webhook(tuple(row)) for row in rows])
    return found


async def _again(tx: Transaction, items: Sequence[Again]) -> list[None]:
    for item in sorted(items):
        await tx.execute(
            "UPDATE webhooks SET tries = $2, due_at = $3 WHERE id = $1 AND due_at IS NOT NULL",
            *item,
        )
    return [None] * len(items)


async def _over(tx: Transaction, items: Sequence[Over]) -> list[None]:
    for item in sorted(items):
        await tx.execute(
            "UPDATE webhooks SET due_at = NULL, outcome = $2, over_at = $3 "
            "WHERE id = $1 AND due_at IS NOT NULL",
            *item,
        )
    return [None] * len(items)


async def _listed(connection: Connection, limit: int) -> list[tuple[Any, ...]]:
    found = await connection.fetch(
        f"SELECT {WEBHOOK}, outcome FROM webhooks ORDER BY ended_at DESC, id DESC LIMIT $1", limit
    )
    return [tuple(row) for row in found]


FORGET = """
WITH gone AS (
    DELETE FROM webhooks WHERE id IN (
        SELECT id FROM webhooks WHERE over_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING 1
)
SELECT count(*) FROM gone
"""


async def _forget(tx: Transaction, items: Sequence[tuple[int, int]]) -> list[int]:
    return [int(await tx.fetchval(FORGET, *item)) for item in items]


async def _secrets(connection: Connection, tenant: str, now: int) -> list[str]:
    found = await connection.fetch(
        "SELECT secret FROM webhook_secrets WHERE tenant = $1 AND (until IS NULL OR until > $2) "
        "ORDER BY at DESC",
        tenant,
        now,
    )
    return [secret for (secret,) in found]


SECRETS_LOCK = 4220
"""Advisory lock: secrets are changed one after the other, so that a tenant's first one is one."""


async def _keep_secret(tx: Transaction, items: Sequence[NewSecret]) -> list[None]:
    await tx.execute("SELECT pg_advisory_xact_lock($1)", SECRETS_LOCK)
    for item in items:
        latest = await tx.fetchval(
            "SELECT max(at) FROM webhook_secrets WHERE tenant = $1", item.tenant
        )
        if item.old_until is None and latest is not None:
            continue
        await tx.execute(
            "UPDATE webhook_secrets SET until = $2 WHERE tenant = $1 AND until IS NULL",
            item.tenant,
            item.old_until,
        )
        at = max(item.now, (latest or 0) + 1)
        await tx.execute(
            "INSERT INTO webhook_secrets VALUES ($1, $2, $3, NULL)", item.tenant, item.secret, at
        )
    return [None] * len(items)
