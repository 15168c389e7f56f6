"""Settle: end attempts. Result, next state, slots, events and refunds in one transaction, and only
while the token holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fairlane.ledger.ledger import Settled, Settlement, Stale
from fairlane.ledger.sqlite.fanout import cell_ended
from fairlane.ledger.sqlite.money import refund
from fairlane.ledger.sqlite.rows import chunks, facts_text, marks
from fairlane.ledger.sqlite.writer import Transaction
from fairlane.model.event import EventType, Fact, place, started
from fairlane.model.lease import Lease, Slot
from fairlane.model.state import ENDED, MOVES, Move, State

END = """
UPDATE jobs SET state = ?, rev = rev + 1, seq = ?, written = ?, finished_at = ?, step = ?,
    attempt = ?, error_code = ?, error_message = ?, token = NULL, lease_until = NULL,
    deadline = NULL, give_up_at = NULL
WHERE id = ?
"""

REQUEUE = """
UPDATE jobs SET state = 'queued', rev = rev + 1, seq = ?, written = ?, step = ?, lane = ?,
    attempt = ?, timeout = ?, ready_at = ?, give_up_at = ?, band = ?, token = NULL,
    lease_until = NULL, deadline = NULL
WHERE id = ?
"""

AFTER = {move: to[State.RUNNING] for move, to in MOVES.items() if State.RUNNING in to}
"""Where each way of settling leads."""

ATTEMPT = "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
STEP = "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)"
EVENTS = "INSERT INTO events VALUES (?, ?, ?)"


def settle(tx: Transaction, items: Sequence[Settlement]) -> list[Settled | Stale]:
    present = _present(tx, items)
    outcomes: list[Settled | Stale] = []
    winners: list[Settlement] = []
    for item in items:
        lease = item.lease
        token, state, rev = present.get(lease.job, (None, None, 0))
        if token == lease.token:
            after = AFTER[item.move]
            present[lease.job] = (None, after, rev + 1)
            winners.append(item)
            outcomes.append(Settled(after, rev + 1))
        else:
            outcomes.append(_too_late(tx, item, state, rev))
    _write(tx, winners)
    return _with_consequences(tx, items, winners, outcomes)


def _present(
    tx: Transaction, items: Sequence[Settlement]
) -> dict[str, tuple[str | None, str | None, int]]:
    return {
        job: (token, state, rev)
        for part in chunks([item.lease.job for item in items])
        for job, token, state, rev in tx.execute(
            f"SELECT id, token, state, rev FROM jobs WHERE id IN ({marks(part)})", part
        )
    }


def _with_consequences(
    tx: Transaction,
    items: Sequence[Settlement],
    winners: list[Settlement],
    outcomes: list[Settled | Stale],
) -> list[Settled | Stale]:
    """Slots freed or kept, and fan-outs that end with their last cell."""
    kept = _free_slots(tx, items, {item.lease.token for item in winners})
    ended = {
        item.lease.job: cell_ended(tx, item.lease.parent, item.now)
        for item in winners
        if item.lease.parent is not None and AFTER[item.move] in ENDED
    }
    if not kept and not ended:
        return outcomes
    return [
        outcome._replace(
            kept=kept.get(item.lease.token, ()), ended_parent=ended.get(item.lease.job)
        )
        if isinstance(outcome, Settled)
        else outcome
        for item, outcome in zip(items, outcomes, strict=True)
    ]


def _too_late(tx: Transaction, item: Settlement, state: str | None, rev: int) -> Settled | Stale:
    """The same settlement again is answered as before; any other hears what became of the job."""
    row = tx.execute(
        "SELECT outcome FROM attempts WHERE job = ? AND fence = ? AND token = ?",
        (item.lease.job, item.lease.fence, item.lease.token),
    ).fetchone()
    if row is not None and row[0] == item.outcome and state is not None:
        return Settled(State(state), rev, again=True)
    return Stale(State(state) if state is not None else None)


def _write(tx: Transaction, winners: list[Settlement]) -> None:
    ends, requeues, attempts, steps, events = [], [], [], [], []
    for item in winners:
        lease = item.lease
        done = item.move is Move.COMPLETE or item.move is Move.ADVANCE
        facts = [*unwritten(lease), *item.facts]
        seq = lease.written + len(facts)
        events.append((lease.job, lease.written + 1, facts_text(facts)))
        attempts.append(attempt_row(item, item.now))
        if done:
            steps.append(
                (
                    lease.job,
                    lease.step,
                    lease.service,
                    item.output,
                    item.metrics,
                    lease.attempt,
                    item.now,
                )
            )
        if AFTER[item.move] is State.QUEUED:
            tx.touched.append(lease.job)
            requeues.append(_requeue_row(item, seq))
        else:
            ends.append(_end_row(item, seq))
            tx.tally.changed((lease.tenant, lease.user), -1)
            if lease.skipped and item.move is not Move.COMPLETE and lease.step == 0:
                refund(tx, lease.job, item.now)
    for statement, rows in (
        (END, ends),
        (REQUEUE, requeues),
        (ATTEMPT, attempts),
        (STEP, steps),
        (EVENTS, events),
    ):
        if rows:
            tx.executemany(statement, rows)
    tx.tally.queued += len(requeues)


def unwritten(lease: Lease) -> list[Fact]:
    """What the job's row has implied since its events were last written down."""
    where = place(lease.service, lease.step, len(lease.plan))
    facts = [started(lease.started_at, where, lease.attempt, lease.worker, lease.region)]
    if lease.seq - lease.written > 1:
        facts.insert(0, Fact(EventType.WAITING, lease.queued_at, where))
    return facts


def attempt_row(item: Settlement, now: int) -> tuple[Any, ...]:
    lease = item.lease
    return (
        lease.job,
        lease.fence,
        lease.token,
        lease.step,
        lease.attempt,
        lease.worker,
        lease.region,
        lease.started_at,
        now,
        item.outcome,
        item.fault,
        item.message,
    )


def _end_row(item: Settlement, seq: int) -> tuple[Any, ...]:
    lease, error = item.lease, item.error
    step = lease.step + 1 if item.move is Move.COMPLETE else lease.step
    code, message = (error.code, error.message) if error is not None else (None, None)
    return (
        AFTER[item.move],
        seq,
        seq,
        item.now,
        step,
        lease.attempt,
        code,
        message,
        lease.job,
    )


def _requeue_row(item: Settlement, seq: int) -> tuple[Any, ...]:
    lease = item.lease
    step = lease.step + 1 if item.move is Move.ADVANCE else lease.step
    return (
        seq,
        seq,
        step,
        item.lane,
        item.attempt,
        item.timeout,
        item.ready_at,
        item.give_up_at,
        item.band,
        lease.job,
    )


def _free_slots(
    tx: Transaction, items: Iterable[Settlement], winners: set[str]
) -> dict[str, tuple[Slot, ...]]:
    """Rates run on by themselves. Everything else of a token goes, unless its call may still be
    open and the service is strict about it; a user's own cap never waits for that."""
    kept: dict[str, tuple[Slot, ...]] = {}
    if tx.execute("SELECT 1 FROM slots LIMIT 1").fetchone() is None:
        return kept
    for item in items:
        token = item.lease.token
        if item.closed or not item.strict:
            tx.execute("DELETE FROM slots WHERE token = ? AND until IS NULL", (token,))
            if item.closed:
                _free_overrun(tx, token)
        elif token in winners:
            kept[token] = keep_until(tx, token, item.lease.deadline)
    return kept


def _free_overrun(tx: Transaction, token: str) -> None:
    """Whoever closed its call frees what was kept for it. A rate's row is not kept: it is due."""
    tx.execute("DELETE FROM slots WHERE token = ? AND pool NOT LIKE 'rate:%'", (token,))


def keep_until(tx: Transaction, token: str, until: int) -> tuple[Slot, ...]:
    """The token's slots stay taken until then, except its user's own."""
    tx.execute("DELETE FROM slots WHERE token = ? AND pool LIKE 'user:%'", (token,))
    tx.execute("UPDATE slots SET until = ? WHERE token = ? AND until IS NULL", (until, token))
    return tuple(
        Slot(pool, n, end)
        for pool, n, end in tx.execute("SELECT pool, n, until FROM slots WHERE token = ?", (token,))
    )
