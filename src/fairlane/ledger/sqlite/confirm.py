"""Confirm: make proposals of the index true, or refuse them, each on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.ledger.shapes import Confirmation, Unconfirmed
from fairlane.ledger.sqlite.context import contexts, large_inputs
from fairlane.ledger.sqlite.rows import chunks, loads, marks, plan
from fairlane.ledger.sqlite.writer import Transaction
from fairlane.model.job import fair_user
from fairlane.model.lease import Lease
from fairlane.model.service import RATE_WINDOW, is_rate_pool
from fairlane.model.state import MOVES, Move

COLUMNS = (
    "id, state, rev, lane, tier, user, key, ready_at, token, fence, timeout, plan, step, attempt, "
    "input, tenant, model, waited, seq, written, paid_at, parent, trace, name, started_at, "
    "lease_until, deadline, created_at, level"
)

CLAIMABLE = frozenset(MOVES[Move.CLAIM])

START = """
UPDATE jobs SET state = 'running', rev = rev + 1, seq = seq + 1, attempt = attempt + 1,
    fence = fence + 1, token = ?, worker = ?, region = ?, lease_until = ?, deadline = ?,
    started_at = ?, waited = ?
WHERE id = ?
"""


def confirm(tx: Transaction, items: Sequence[Confirmation]) -> list[Lease | Unconfirmed]:
    (epoch,) = tx.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    rows = _rows(tx, items)
    context = contexts(tx, [row[0] for row in rows.values() if row[12]])
    inputs = large_inputs(tx, [row[0] for row in rows.values() if row[14] is None])
    outcomes: list[Lease | Unconfirmed] = []
    granted: dict[str, Lease] = {}
    starts: list[tuple[Any, ...]] = []
    for item in items:
        row = rows.get(item.job)
        if row is None:
            outcomes.append(Unconfirmed("unknown job"))
            continue
        earlier = granted.get(item.job)
        again = row[8] == item.token
        if earlier is not None:
            same = earlier.token == item.token
            outcomes.append(earlier if same else Unconfirmed("already taken"))
            continue
        refusal = None if again else _refusal(item, row, epoch) or _take_slots(tx, item)
        if refusal is not None:
            outcomes.append(refusal)
            continue
        text = inputs[item.job] if row[14] is None else row[14]
        lease = _lease(item, row, text, context.get(item.job, {}), again=again)
        outcomes.append(lease)
        if not again:
            granted[item.job] = lease
            starts.append(_start(item, lease))
    parents = {lease.parent for lease in granted.values() if lease.parent is not None}
    if starts:
        tx.executemany(START, starts)
    tx.tally.queued -= len(starts)
    for parent in parents:
        _start_parent(tx, parent, items[0].now)
    return outcomes


def _rows(tx: Transaction, items: Sequence[Confirmation]) -> dict[str, tuple[Any, ...]]:
    return {
        row[0]: row
        for part in chunks([item.job for item in items])
        for row in tx.execute(f"SELECT {COLUMNS} FROM jobs WHERE id IN ({marks(part)})", part)
    }


def _refusal(item: Confirmation, row: tuple[Any, ...], epoch: str) -> Unconfirmed | None:
    _, state, rev, lane, tier, user, key, ready_at = row[:8]
    if item.epoch != epoch:
        return Unconfirmed("another epoch")
    if state not in CLAIMABLE or rev != item.rev:
        return Unconfirmed(f"job is {state} at rev {rev}")
    if ready_at > item.now:
        return Unconfirmed("not ready yet")
    who = fair_user(row[15], user, key)
    if (lane, tier, who) != (item.lane, item.tier, item.user):
        return Unconfirmed("another lane, tier or user")
    if item.slots or item.pools:
        return _wrong_pools(item)
    return None


def _wrong_pools(item: Confirmation) -> Unconfirmed | None:
    named = sorted(slot.pool for slot in item.slots)
    if named == sorted(item.pools):
        return None
    return Unconfirmed("not the pools it needs", tuple(item.pools))


def _take_slots(tx: Transaction, item: Confirmation) -> Unconfirmed | None:
    """All slots or none. One writer: what is free when we look is free when we insert."""
    wrong: list[str] = []
    for slot in item.slots:
        if is_rate_pool(slot.pool):
            tx.execute("DELETE FROM slots WHERE pool = ? AND until <= ?", (slot.pool, item.now))
        if not _is_free(tx, slot.pool, slot.n, item.cap):
            wrong.append(slot.pool)
    if wrong:
        return Unconfirmed("slot taken or above the limit", tuple(wrong))
    if not item.slots:
        return None
    tx.executemany(
        "INSERT INTO slots VALUES (?, ?, ?, ?, ?)",
        [
            (slot.pool, slot.n, item.token, item.job, _until(slot.pool, item.now))
            for slot in item.slots
        ],
    )
    return None


def _until(pool: str, now: int) -> int | None:
    """When a slot ends by itself: only a rate's does."""
    return now + RATE_WINDOW if is_rate_pool(pool) else None


def _is_free(tx: Transaction, pool: str, n: int, cap: int) -> bool:
    row = tx.execute("SELECT size FROM pools WHERE name = ?", (pool,)).fetchone()
    size = row[0] if row is not None else cap
    above, same = tx.execute(
        "SELECT EXISTS (SELECT 1 FROM slots WHERE pool = ? AND n > ?), "
        "EXISTS (SELECT 1 FROM slots WHERE pool = ? AND n = ?)",
        (pool, size, pool, n),
    ).fetchone()
    if same or not 0 < n <= size:
        return False
    if above:
        (held,) = tx.execute("SELECT count(*) FROM slots WHERE pool = ?", (pool,)).fetchone()
        return bool(held < size)
    return True


def _lease(
    item: Confirmation, row: tuple[Any, ...], text: str, context: dict[str, Any], *, again: bool
) -> Lease:
    (_, _, rev, _, tier, _, _, ready_at, _, fence, timeout, plan_text, step, attempt) = row[:14]
    (tenant, model, waited, seq, written, paid_at, parent, trace, name) = row[15:24]
    started_at, lease_until, deadline, created_at, level = row[24:]
    if not again:
        rev, fence, attempt, seq = rev + 1, fence + 1, attempt + 1, seq + 1
        started_at, deadline = item.now, item.now + timeout
        lease_until = min(item.now + item.lease, deadline)
        waited += item.now - ready_at
    return Lease(
        item.job,
        item.token,
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
        item.region,
        item.worker,
        item.cost,
        started_at,
        lease_until,
        deadline,
        created_at,
        waited,
        seq,
        written,
        paid_at,
        parent,
        trace,
    )


def _start(item: Confirmation, lease: Lease) -> tuple[Any, ...]:
    return (
        lease.token,
        lease.worker,
        lease.region,
        lease.lease_until,
        lease.deadline,
        lease.started_at,
        lease.waited,
        item.job,
    )


def _start_parent(tx: Transaction, parent: str, now: int) -> None:
    """A fan-out runs from the start of its first cell."""
    tx.execute(
        "UPDATE jobs SET state = 'running', rev = rev + 1, started_at = ? "
        "WHERE id = ? AND state = 'queued'",
        (now, parent),
    )
