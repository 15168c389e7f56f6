"""The webhook outbox in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.ledger.webhooks import (
    WEBHOOK,
    NewWebhookSecret,
    WebhookEnd,
    WebhookRetry,
    WebhookVerbs,
    webhook,
)
from fairlane.model.webhook import Webhook


def _any_due(connection: sqlite3.Connection, now: int) -> bool:
    """A read-only check, because frequent polling must not cost a commit."""
    found = connection.execute("SELECT 1 FROM webhooks WHERE due_at <= ? LIMIT 1", (now,))
    return found.fetchone() is not None


UNWANTED = """
UPDATE webhooks SET due_at = NULL, outcome = 'gone', over_at = ?1 WHERE due_at <= ?1 AND EXISTS (
    SELECT 1 FROM webhooks gone WHERE gone.outcome = 'gone' AND gone.tenant = webhooks.tenant
    AND gone.url = webhooks.url)
"""
DUE = f"""
SELECT {WEBHOOK} FROM webhooks WHERE due_at <= ? AND NOT EXISTS (
    SELECT 1 FROM webhooks first WHERE first.due_at IS NOT NULL AND first.job = webhooks.job
    AND first.rev < webhooks.rev)
ORDER BY due_at, id LIMIT ?
"""
HOLD = "UPDATE webhooks SET due_at = ? WHERE id = ?"


def _due(tx: SqliteTransaction, items: Sequence[tuple[int, int, int]]) -> list[list[Webhook]]:
    found = []
    for now, hold_until, limit in items:
        tx.execute(UNWANTED, (now,))
        rows = tx.execute(DUE, (now, limit)).fetchall()
        tx.executemany(HOLD, [(hold_until, row[0]) for row in rows])
        found.append([webhook(row) for row in rows])
    return found


def _again(tx: SqliteTransaction, items: Sequence[WebhookRetry]) -> list[None]:
    tx.executemany(
        "UPDATE webhooks SET tries = ?, due_at = ? WHERE id = ? AND due_at IS NOT NULL",
        [(item.tries, item.at, item.webhook) for item in items],
    )
    return [None] * len(items)


def _over(tx: SqliteTransaction, items: Sequence[WebhookEnd]) -> list[None]:
    tx.executemany(
        "UPDATE webhooks SET due_at = NULL, outcome = ?, over_at = ? "
        "WHERE id = ? AND due_at IS NOT NULL",
        [(item.how, item.now, item.webhook) for item in items],
    )
    return [None] * len(items)


def _listed(connection: sqlite3.Connection, limit: int) -> list[tuple[Any, ...]]:
    return connection.execute(
        f"SELECT {WEBHOOK}, outcome FROM webhooks ORDER BY ended_at DESC, id DESC LIMIT ?",
        (limit,),
    ).fetchall()


def _forget(tx: SqliteTransaction, items: Sequence[tuple[int, int]]) -> list[int]:
    return [
        tx.execute(
            "DELETE FROM webhooks WHERE id IN (SELECT id FROM webhooks WHERE over_at <= ? LIMIT ?)",
            item,
        ).rowcount
        for item in items
    ]


def _secrets(connection: sqlite3.Connection, tenant: str, now: int) -> list[str]:
    found = connection.execute(
        "SELECT secret FROM webhook_secrets WHERE tenant = ? AND (until IS NULL OR until > ?) "
        "ORDER BY at DESC",
        (tenant, now),
    )
    return [secret for (secret,) in found]


AUDIT = "INSERT INTO audit (at, actor, action, target, before, after) VALUES (?, ?, ?, ?, ?, ?)"


def _keep_secret(tx: SqliteTransaction, items: Sequence[NewWebhookSecret]) -> list[None]:
    for item in items:
        latest = tx.execute(
            "SELECT max(at) FROM webhook_secrets WHERE tenant = ?", (item.tenant,)
        ).fetchone()[0]
        if item.old_until is None and latest is not None:
            continue
        tx.execute(
            "UPDATE webhook_secrets SET until = ? WHERE tenant = ? AND until IS NULL",
            (item.old_until, item.tenant),
        )
        at = max(item.now, (latest or 0) + 1)
        row = (item.tenant, item.secret, at)
        tx.execute("INSERT INTO webhook_secrets VALUES (?, ?, ?, NULL)", row)
        if item.old_until is not None:
            tx.execute(AUDIT, item.audit_record)
    return [None] * len(items)


VERBS = WebhookVerbs(_any_due, _due, _again, _over, _listed, _forget, _secrets, _keep_secret)
