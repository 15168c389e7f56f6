"""Idempotency keys: a key belongs to the first submit that uses it, until it expires."""

from __future__ import annotations

from fairlane.errors import FairlaneError, KeyReused
from fairlane.ledger.messages import Replayed, Submission
from fairlane.ledger.sqlite.writer import SqliteTransaction


def earlier_use(tx: SqliteTransaction, item: Submission) -> Replayed | FairlaneError | None:
    if item.idempotency is None:
        return None
    scope, key, digest = item.idempotency
    row = tx.execute(
        "SELECT hash, job, status FROM idempotency WHERE scope = ? AND key = ? AND at > ?",
        (scope, key, item.common.created_at - item.keep_keys),
    ).fetchone()
    if row is None:
        return None
    if row[0] != digest:
        return KeyReused()
    return Replayed(row[1], row[2])


def remember_key(tx: SqliteTransaction, item: Submission) -> None:
    if item.idempotency is not None:
        scope, key, digest = item.idempotency
        tx.execute(
            "INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?, ?, NULL)",
            (scope, key, digest, item.id, item.common.created_at),
        )
