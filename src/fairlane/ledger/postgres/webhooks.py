"""The webhook outbox in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.ledger import webhooks
from fairlane.ledger.postgres.admin import audited
from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.webhooks import (
    NewWebhookSecret,
    WebhookEnd,
    WebhookRetry,
    WebhookVerbs,
    webhook,
)
from fairlane.model.webhook import Webhook

WEBHOOK = webhooks.WEBHOOK.replace(" user,", " username,")


async def _any_due(connection: Connection, now: int) -> bool:
    """A read-only check, because frequent polling must not cost a commit."""
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
WITH late AS MATERIALIZED (
    SELECT id, due_at AS since FROM webhooks due WHERE due.due_at <= $1 AND NOT EXISTS (
        SELECT 1 FROM webhooks first WHERE first.due_at IS NOT NULL AND first.job = due.job
        AND first.rev < due.rev)
    ORDER BY due.due_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
), held AS (
    UPDATE webhooks SET due_at = $2 FROM late WHERE webhooks.id = late.id
    RETURNING webhooks.*, late.since
)
SELECT {WEBHOOK} FROM held ORDER BY since, id
"""


async def _due(
    tx: PostgresTransaction, items: Sequence[tuple[int, int, int]]
) -> list[list[Webhook]]:
    """Webhooks that another process has just taken are locked or no longer due."""
    found = []
    for now, hold_until, limit in items:
        await tx.execute(UNWANTED, now)
        rows = await tx.fetch(DUE, now, hold_until, limit)
        found.append([webhook(tuple(row)) for row in rows])
    return found


async def _again(tx: PostgresTransaction, items: Sequence[WebhookRetry]) -> list[None]:
    for item in sorted(items):
        await tx.execute(
            "UPDATE webhooks SET tries = $2, due_at = $3 WHERE id = $1 AND due_at IS NOT NULL",
            *item,
        )
    return [None] * len(items)


async def _over(tx: PostgresTransaction, items: Sequence[WebhookEnd]) -> list[None]:
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


async def _forget(tx: PostgresTransaction, items: Sequence[tuple[int, int]]) -> list[int]:
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
"""Advisory lock: changes of secrets are serialized, so that a tenant gets only one first secret."""


async def _keep_secret(tx: PostgresTransaction, items: Sequence[NewWebhookSecret]) -> list[None]:
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
        if item.old_until is not None:
            await audited(tx, item.audit_record)
    return [None] * len(items)


VERBS = WebhookVerbs(_any_due, _due, _again, _over, _listed, _forget, _secrets, _keep_secret)
