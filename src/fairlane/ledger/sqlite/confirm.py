"""Confirm in SQLite: grant a lease for each proposal of the index, or refuse it, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fairlane.ledger.claim_rows import COLUMNS, granted, reason, wrong_epoch_or_pools
from fairlane.ledger.messages import Confirmation, Unconfirmed
from fairlane.ledger.rows import loads
from fairlane.ledger.sqlite.events import find
from fairlane.ledger.sqlite.job_context import contexts, inputs_elsewhere
from fairlane.ledger.sqlite.slots import take, take_all
from fairlane.ledger.sqlite.statements import parts
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.lease import Lease

Row = tuple[Any, ...]


BEGIN = "max(v.now, created_at, coalesce(promoted_at, 0), paid_at)"
"""When a job starts: not before any event that was already reported for it. The job was queued by
`ready_at` at the latest."""


@lru_cache
def start(proposals: int) -> str:
    """Start the jobs that are queued as proposed: same rev, lane, tier and user, and ready."""
    values = ",".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * proposals)
    return f"""
        WITH v (id, rev, lane, tier, who, token, worker, region, lease, now) AS (VALUES {values})
        UPDATE jobs SET state = 'running', rev = jobs.rev + 1, seq = seq + 1,
            attempt = attempt + 1, fence = fence + 1, token = v.token, worker = v.worker,
            region = v.region, lease = v.lease, lease_until = {BEGIN} + min(v.lease, timeout),
            deadline = {BEGIN} + timeout, started_at = {BEGIN}, waited = waited + v.now - ready_at
        FROM v
        WHERE jobs.id = v.id AND jobs.rev = v.rev AND jobs.state = 'queued' AND jobs.cells = 0
            AND jobs.ready_at <= v.now AND jobs.lane = v.lane AND jobs.tier = v.tier
            AND coalesce(tenant || ':u:' || user, tenant || ':k:' || key) = v.who
        RETURNING {COLUMNS}
    """


def confirm(tx: SqliteTransaction, items: Sequence[Confirmation]) -> list[Lease | Unconfirmed]:
    (epoch,) = tx.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    refused: dict[int, Unconfirmed] = {}
    hopeful: list[Confirmation] = []
    for i, item in enumerate(items):
        refusal = wrong_epoch_or_pools(item, epoch)
        if refusal is not None:
            refused[i] = refusal
        else:
            hopeful.append(item)
    rows = _start(tx, hopeful)
    if rows is None:
        rows = _start_one_by_one(tx, items, refused)
    leases = _leases(tx, items, rows)
    tx.tally.queued -= len(rows)
    for parent in {lease.parent for lease in leases.values() if lease.parent is not None}:
        _start_parent(tx, parent, items[0].now)
    return [
        leases.get(item.token) or _unstarted_outcome(tx, item, refused.get(i))
        for i, item in enumerate(items)
    ]


def _start(tx: SqliteTransaction, items: Sequence[Confirmation]) -> dict[str, Row] | None:
    """Start all items at once, because almost always every slot is free. Returns None, with nothing
    written, if a slot is not free."""
    limited = any(item.slots for item in items)
    if limited:
        tx.execute("SAVEPOINT start")
    rows = {row[0]: row for part in parts(items) for row in tx.execute(*_statement(part))}
    if limited:
        if not take_all(tx, [item for item in items if item.token in rows]):
            tx.execute("ROLLBACK TO start")
            tx.execute("RELEASE start")
            return None
        tx.execute("RELEASE start")
    return rows


def _start_one_by_one(
    tx: SqliteTransaction, items: Sequence[Confirmation], refused: dict[int, Unconfirmed]
) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for i, item in enumerate(items):
        if i in refused:
            continue
        refusal = take(tx, item)
        if refusal is not None:
            refused[i] = refusal
            continue
        rows.update((row[0], row) for row in tx.execute(*_statement([item])))
    return rows


def _statement(part: Sequence[Confirmation]) -> tuple[str, list[Any]]:
    values: list[Any] = []
    for item in part:
        values += (
            item.job,
            item.rev,
            item.lane,
            item.tier,
            item.user,
            item.token,
            item.worker,
            item.region,
            item.lease,
            item.now,
        )
    return start(len(part)), values


def _leases(
    tx: SqliteTransaction, items: Sequence[Confirmation], rows: dict[str, Row]
) -> dict[str, Lease]:
    context = contexts(tx, [row[1] for row in rows.values() if row[6]])
    inputs = inputs_elsewhere(tx, [row[1] for row in rows.values() if row[8] is None])
    found = {}
    for item in items:
        row = rows.get(item.token)
        if row is not None:
            sent = inputs[item.job] if row[8] is None else loads(row[8])
            found[item.token] = granted(item, row, sent, context.get(item.job, {}))
    return found


# --- those that did not start ------------------------------------------------------------------
def _unstarted_outcome(
    tx: SqliteTransaction, item: Confirmation, refusal: Unconfirmed | None
) -> Lease | Unconfirmed:
    """The outcome of an item that did not start. A repeated proposal gets the same lease as before;
    any other gets the reason for its refusal."""
    job = find(tx, item.job)
    if job is not None and job.token == item.token:
        return _again(tx, item)
    if refusal is not None:
        return refusal
    tx.execute("DELETE FROM slots WHERE token = ?", (item.token,))
    return Unconfirmed(reason(item, job))


def _again(tx: SqliteTransaction, item: Confirmation) -> Lease:
    row = tx.execute(f"SELECT {COLUMNS} FROM jobs WHERE id = ?", (item.job,)).fetchone()
    return _leases(tx, [item], {item.token: row})[item.token]


def _start_parent(tx: SqliteTransaction, parent: str, now: int) -> None:
    """A fan-out runs from the start of its first cell."""
    tx.execute(
        "UPDATE jobs SET state = 'running', rev = rev + 1, started_at = ? "
        "WHERE id = ? AND state = 'queued'",
        (now, parent),
    )
