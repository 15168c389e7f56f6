"""Settle in SQLite: end attempts. Result, next state, slots, events and refunds are one
transaction, guarded by the lease's token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from fairlane.ledger.messages import Settled, Settlement, Stale
from fairlane.ledger.row_groups import NO_NEWS, ParentNews, settled_cells
from fairlane.ledger.rows import facts_text
from fairlane.ledger.settle_rows import (
    AFTER,
    attempt_row,
    complete_row,
    discarded_row,
    end_row,
    fits,
    requeue_row,
    step_row,
    unwritten,
)
from fairlane.ledger.sqlite.credits import refund
from fairlane.ledger.sqlite.fanout import cells_ended
from fairlane.ledger.sqlite.fencing import HOLDS, HOLDS_AS_SEEN, holding, present_states, too_late
from fairlane.ledger.sqlite.slots import free
from fairlane.ledger.sqlite.statements import insert, parts, placeholders
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.lease import Slot
from fairlane.model.state import Move, State

COMPLETE = f"""
UPDATE jobs SET state = 'completed', rev = rev + 1, seq = seq + 2, finished_at = v.now,
    step = step + 1, output = v.output, metrics = v.metrics, ended_by = jobs.token, token = NULL,
    lease_until = NULL, deadline = NULL, give_up_at = NULL
FROM v WHERE {HOLDS}
"""
COMPLETE_VALUES = ("now", "output", "metrics", "id", "token")

END = f"""
UPDATE jobs SET state = v.state, rev = rev + 1, seq = v.seq, written = v.seq,
    finished_at = v.now, step = v.step, attempt = v.attempt, error_code = v.code,
    error_message = v.message, token = NULL, lease_until = NULL, deadline = NULL, give_up_at = NULL
FROM v WHERE {HOLDS_AS_SEEN}
"""
END_VALUES = (
    "state", "seq", "now", "step", "attempt", "code", "message", "seen_until", "id", "token",
)  # fmt: skip

REQUEUE = f"""
UPDATE jobs SET state = 'queued', rev = rev + 1, seq = v.seq, written = v.seq, step = v.step,
    lane = v.lane, attempt = v.attempt, timeout = v.timeout, ready_at = v.ready_at,
    progress = NULL,
    give_up_at = v.give_up_at, band = v.band, token = NULL, lease_until = NULL, deadline = NULL
FROM v WHERE {HOLDS_AS_SEEN}
"""
REQUEUE_VALUES = (
    "seq", "step", "lane", "attempt", "timeout", "ready_at", "give_up_at", "band", "seen_until",
    "id", "token",
)  # fmt: skip


@lru_cache
def update(statement: str, values: tuple[str, ...], rows: int) -> str:
    """The statement with its `FROM v` values, in a form for which sqlite3 counts the changed
    rows."""
    numbered = re.sub(r"\bv\.(\w+)", lambda name: f"v.column{values.index(name[1]) + 1}", statement)
    return numbered.replace("FROM v", f"FROM (VALUES {placeholders(len(values), rows)}) AS v")


def settle(tx: SqliteTransaction, items: Sequence[Settlement]) -> list[Settled | Stale]:
    """Write all items and count the rows, because almost always every token holds. If one did not,
    roll the batch back and write it again without that item."""
    tx.execute("SAVEPOINT settle")
    winners: Sequence[Settlement] = items
    if _write(tx, items) < len(items):
        tx.execute("ROLLBACK TO settle")
        winners = holding(tx, items)
        _write(tx, winners)
    tx.execute("RELEASE settle")
    for item in winners:
        _account_for(tx, item)
    outcomes: list[Settled | Stale] = [
        Settled(AFTER[item.move], item.lease.rev + 1) for item in items
    ]
    if len(winners) < len(items):
        _tell_losers(tx, items, winners, outcomes)
    return _with_consequences(tx, items, winners, outcomes)


def _tell_losers(
    tx: SqliteTransaction,
    items: Sequence[Settlement],
    winners: Sequence[Settlement],
    outcomes: list[Settled | Stale],
) -> None:
    won = {id(item) for item in winners}
    present = present_states(tx, items)
    for i, item in enumerate(items):
        if id(item) not in won:
            outcomes[i] = too_late(tx, item, present.get(item.lease.job))


def _with_consequences(
    tx: SqliteTransaction,
    items: Sequence[Settlement],
    winners: Sequence[Settlement],
    outcomes: list[Settled | Stale],
) -> list[Settled | Stale]:
    """Free or keep slots, and end fan-outs with their last cell."""
    kept = free(tx, items, {item.lease.token for item in winners})
    parents = {ended.job: cells_ended(tx, ended) for ended in settled_cells(winners)}
    if not kept and not parents:
        return outcomes
    return [
        _with_parent(outcome, kept.get(item.lease.token, ()), parents.get(item.lease.job, NO_NEWS))
        if isinstance(outcome, Settled)
        else outcome
        for item, outcome in zip(items, outcomes, strict=True)
    ]


def _with_parent(outcome: Settled, kept: tuple[Slot, ...], parent: ParentNews) -> Settled:
    return outcome._replace(kept=kept, ended_parent=parent.ended, stopping_parent=parent.stopping)


def _write(tx: SqliteTransaction, items: Sequence[Settlement]) -> int:
    """Write these settlements. Returns how many of their tokens held."""
    completed = [item for item in items if item.move is Move.COMPLETE]
    others = [item for item in items if item.move is not Move.COMPLETE]
    held = _update(tx, COMPLETE, COMPLETE_VALUES, [complete_row(item) for item in completed])
    steps = [step_row(item) for item in completed if not fits(item)]
    if others:
        held += _write_others(tx, others)
        steps += [step_row(item) for item in others if item.move is Move.ADVANCE]
    if held == len(items):
        _insert(tx, "steps", steps)
    return held


def _write_others(tx: SqliteTransaction, items: Sequence[Settlement]) -> int:
    """Write settlements that do not complete a job, with the attempts and events that the row of a
    completed job would imply."""
    ends, requeues, attempts, events, discarded = [], [], [], [], []
    for item in items:
        lease = item.lease
        facts = [*unwritten(lease), *item.facts]
        seq = lease.written + len(facts)
        events.append((lease.job, lease.written + 1, facts_text(facts)))
        attempts.append(attempt_row(item))
        if AFTER[item.move] is State.QUEUED:
            requeues.append(requeue_row(item, seq))
            if item.step is not None:
                discarded.append(discarded_row(item))
        else:
            ends.append(end_row(item, seq))
    held = _update(tx, END, END_VALUES, ends) + _update(tx, REQUEUE, REQUEUE_VALUES, requeues)
    if held == len(items):
        _insert(tx, "attempts", attempts)
        _insert(tx, "events", events)
        if discarded:
            tx.executemany("DELETE FROM steps WHERE job = ? AND step = ?", discarded)
    return held


def _update(
    tx: SqliteTransaction, statement: str, values: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> int:
    """Returns the number of updated rows."""
    return sum(
        tx.execute(update(statement, values, len(part)), list(chain.from_iterable(part))).rowcount
        for part in parts(rows)
    )


def _insert(tx: SqliteTransaction, table: str, rows: list[tuple[Any, ...]]) -> None:
    for part in parts(rows):
        tx.execute(insert(table, len(part[0]), len(part)), list(chain.from_iterable(part)))


def _account_for(tx: SqliteTransaction, item: Settlement) -> None:
    """Write the consequences: the counters, the outbox, and the refund of a skip that had no
    effect."""
    lease = item.lease
    if AFTER[item.move] is State.QUEUED:
        tx.tally.queued += 1
        tx.touched.append(lease.job)
        return
    tx.tally.changed(lease.user, -1)
    if lease.paid_at and item.move is not Move.COMPLETE and lease.delivered == 0:
        refund(tx, lease.job, item.now)
