"""Retention: how long ended jobs, their records and idempotency keys are kept."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.requests import Purge, Retirement
from fairlane.ledger.sqlite.admin import audited
from fairlane.ledger.sqlite.writer import SqliteTransaction


def retire(tx: SqliteTransaction, items: Sequence[Retirement]) -> list[int]:
    return [_retire(tx, item) for item in items]


def purge(tx: SqliteTransaction, items: Sequence[Purge]) -> list[int]:
    done = []
    for item in items:
        found = [
            job
            for job in item.jobs
            if tx.execute(
                "SELECT 1 FROM jobs WHERE id = ? AND tenant = ? AND state = 'dead' "
                "AND parent IS NULL AND cells = 0",
                (job, item.tenant),
            ).fetchone()
        ]
        for job in found:
            _forget(tx, job, "dead")
            audited(tx, item.now, item.actor, "purge", job, "dead", None)
        done.append(len(found))
    return done


def _forget(tx: SqliteTransaction, job: str, state: str) -> None:
    tx.execute("UPDATE idempotency SET status = ? WHERE job = ?", (state, job))
    for table in ("steps", "attempts", "events", "inputs"):
        tx.execute(f"DELETE FROM {table} WHERE job = ?", (job,))
    tx.execute("DELETE FROM jobs WHERE id = ?", (job,))


def _retire(tx: SqliteTransaction, item: Retirement) -> int:
    """Delete jobs, except cells of a parent that lives or is kept, parents of cells that are kept,
    and jobs that the outbox still names."""
    found = tx.execute(
        "SELECT id, state FROM jobs WHERE finished_at <= ? "
        "AND (state <> 'dead' OR finished_at <= ?) "
        "AND (parent IS NULL OR NOT EXISTS (SELECT 1 FROM jobs p WHERE p.id = jobs.parent "
        "AND (p.finished_at IS NULL OR p.finished_at > ?))) "
        "AND (cells = 0 OR NOT EXISTS (SELECT 1 FROM jobs cell WHERE cell.parent = jobs.id)) "
        "AND id NOT IN (SELECT value FROM outbox, json_each(outbox.jobs)) "
        "ORDER BY finished_at LIMIT ?",
        (item.finished_before, item.dead_before, item.finished_before, item.limit),
    ).fetchall()
    for job, state in found:
        _forget(tx, job, state)
    keys = tx.execute(
        "DELETE FROM idempotency WHERE (scope, key) IN "
        "(SELECT scope, key FROM idempotency WHERE at <= ? LIMIT ?)",
        (item.keys_before, item.limit),
    ).rowcount
    return max(len(found), keys)
