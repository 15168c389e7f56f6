"""Confirm: make proposals of the index true, or refuse them, each on its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fairlane.ledger.shapes import Confirmation, Unconfirmed
from fairlane.ledger.sqlite.context import contexts, large_inputs
from fairlane.ledger.sqlite.history import find
from fairlane.ledger.sqlite.rows import loads, parts, plan
from fairlane.ledger.sqlite.writer import Transaction
from fairlane.model.job import Band, Job
from fairlane.model.lease import Lease
from fairlane.model.service import RATE_WINDOW, is_rate_pool
from fairlane.model.state import Move, moved

COLUMNS = (
    "token, id, fence, rev, name, plan, step, attempt, input, tenant, tier, level, model, region, "
    "worker, started_at, lease_until, deadline, created_at, waited, seq, written, lane, band, "
    "paid_at, parent, trace"
)

Row = tuple[Any, ...]
BANDS = tuple(Band)


@lru_cache
def start(proposals: int) -> str:
    """Start the jobs that are queued as proposed: same rev, lane, tier and user, time come."""
    values = ",".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * proposals)
    return f"""
        WITH v (id, rev, lane, tier, who, token, worker, region, lease, now) AS (VALUES {values})
        UPDATE jobs SET state = 'running', rev = jobs.rev + 1, seq = seq + 1,
            attempt = attempt + 1, fence = fence + 1, token = v.token, worker = v.worker,
            region = v.region, lease = v.lease, lease_until = v.now + min(v.lease, timeout),
            deadline = v.now + timeout, started_at = v.now, waited = waited + v.now - ready_at
        FROM v
        WHERE jobs.id = v.id AND jobs.rev = v.rev AND jobs.state = 'queued' AND jobs.cells = 0
            AND jobs.ready_at <= v.now AND jobs.lane = v.lane AND jobs.tier = v.tier
            AND coalesce(tenant || ':u:' || user, tenant || ':k:' || key) = v.who
        RETURNING {COLUMNS}
    """


def confirm(tx: Transaction, items: Sequence[Confirmation]) -> list[Lease | Unconfirmed]:
    (epoch,) = tx.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    refused: dict[int, Unconfirmed] = {}
    for i, item in enumerate(items):
        refusal = _wrong_epoch_or_pools(item, epoch) or _take_slots(tx, item)
        if refusal is not None:
            refused[i] = refusal
    hopeful = [item for i, item in enumerate(items) if i not in refused]
    rows = {row[0]: row for part in parts(hopeful) for row in tx.execute(*_statement(part))}
    leases = _leases(tx, items, rows)
    tx.tally.queued -= len(rows)
    for parent in {lease.parent for lease in leases.values() if lease.parent is not None}:
        _start_parent(tx, parent, items[0].now)
    return [
        leases.get(item.token) or _loser(tx, item, refused.get(i)) for i, item in enumerate(items)
    ]


def _wrong_epoch_or_pools(item: Confirmation, epoch: str) -> Unconfirmed | None:
    if item.epoch != epoch:
        return Unconfirmed("another epoch")
    if item.slots or item.pools:
        named = sorted(slot.pool for slot in item.slots)
        if named != sorted(item.pools):
            return Unconfirmed("not the pools it needs", tuple(item.pools))
    return None


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
    tx: Transaction, items: Sequence[Confirmation], rows: dict[str, Row]
) -> dict[str, Lease]:
    context = contexts(tx, [row[1] for row in rows.values() if row[6]])
    inputs = large_inputs(tx, [row[1] for row in rows.values() if row[8] is None])
    found = {}
    for item in items:
        row = rows.get(item.token)
        if row is not None:
            text = inputs[item.job] if row[8] is None else row[8]
            found[item.token] = _lease(item, row, text, context.get(item.job, {}))
    return found


def _lease(item: Confirmation, row: Row, text: str, context: dict[str, Any]) -> Lease:
    (token, job, fence, rev, name, plan_text, step, attempt, _, *more) = row
    tenant, tier, level, model, region, worker, *times, lane, band, paid_at, parent, trace = more
    started_at, lease_until, deadline, created_at, waited, seq, written = times
    return Lease(
        job,
        token,
        fence,
        rev,
        name,
        plan(plan_text),
        step,
        attempt,
        loads(text),
        context,
        tenant,
        item.user,
        tier,
        level,
        model,
        region,
        worker,
        item.cost,
        started_at,
        lease_until,
        deadline,
        created_at,
        waited,
        seq,
        written,
        lane,
        BANDS[band],
        paid_at,
        parent,
        trace,
    )


# --- those that did not start ------------------------------------------------------------------
def _loser(tx: Transaction, item: Confirmation, refusal: Unconfirmed | None) -> Lease | Unconfirmed:
    """The same proposal again is answered as before; any other hears why it was refused."""
    job = find(tx, item.job)
    if job is not None and job.token == item.token:
        return _again(tx, item)
    if refusal is not None:
        return refusal
    tx.execute("DELETE FROM slots WHERE token = ?", (item.token,))
    return Unconfirmed(_reason(item, job))


def _again(tx: Transaction, item: Confirmation) -> Lease:
    row = tx.execute(f"SELECT {COLUMNS} FROM jobs WHERE id = ?", (item.job,)).fetchone()
    return _leases(tx, [item], {item.token: row})[item.token]


def _reason(item: Confirmation, job: Job | None) -> str:
    if job is None:
        return "unknown job"
    if moved(job.state, Move.CLAIM) is None or job.rev != item.rev:
        return f"job is {job.state} at rev {job.rev}"
    if job.ready_at > item.now:
        return "not ready yet"
    return "another lane, tier or user"


# --- slots -------------------------------------------------------------------------------------
def _take_slots(tx: Transaction, item: Confirmation) -> Unconfirmed | None:
    """All slots or none. One writer: what is free when we look is free when we insert."""
    if not item.slots or _runs_already(tx, item):
        return None
    wrong = [
        slot.pool for slot in item.slots if not _is_free(tx, slot.pool, slot.n, item.cap, item.now)
    ]
    if wrong:
        return Unconfirmed("slot taken or above the limit", tuple(wrong))
    tx.executemany(
        "INSERT INTO slots VALUES (?, ?, ?, ?, ?)",
        [
            (slot.pool, slot.n, item.token, item.job, _until(slot.pool, item.now))
            for slot in item.slots
        ],
    )
    return None


def _runs_already(tx: Transaction, item: Confirmation) -> bool:
    """A claim run again has its slots, or had them: it takes no others."""
    found = tx.execute("SELECT 1 FROM jobs WHERE id = ? AND token = ?", (item.job, item.token))
    return found.fetchone() is not None


def _until(pool: str, now: int) -> int | None:
    """When a slot ends by itself: only a rate's does."""
    return now + RATE_WINDOW if is_rate_pool(pool) else None


def _is_free(tx: Transaction, pool: str, n: int, cap: int, now: int) -> bool:
    row = tx.execute("SELECT size FROM pools WHERE name = ?", (pool,)).fetchone()
    size = row[0] if row is not None else cap
    if not 0 < n <= size:
        return False
    if _has_room(tx, pool, n, size):
        return True
    tx.execute("DELETE FROM slots WHERE pool = ? AND until <= ?", (pool, now))
    return _has_room(tx, pool, n, size)


def _has_room(tx: Transaction, pool: str, n: int, size: int) -> bool:
    above, same = tx.execute(
        "SELECT EXISTS (SELECT 1 FROM slots WHERE pool = ? AND n > ?), "
        "EXISTS (SELECT 1 FROM slots WHERE pool = ? AND n = ?)",
        (pool, size, pool, n),
    ).fetchone()
    if same or not above:
        return not same
    (held,) = tx.execute("SELECT count(*) FROM slots WHERE pool = ?", (pool,)).fetchone()
    return bool(held < size)


def _start_parent(tx: Transaction, parent: str, now: int) -> None:
    """A fan-out runs from the start of its first cell."""
    tx.execute(
        "UPDATE jobs SET state = 'running', rev = rev + 1, started_at = ? "
        "WHERE id = ? AND state = 'queued'",
        (now, parent),
    )
