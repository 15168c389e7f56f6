"""Settle in PostgreSQL: end attempts. Result, next state, slots, events and refunds are one
transaction, guarded by the lease's token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.ledger.messages import Settled, Settlement, Stale
from fairlane.ledger.postgres.credits import refund
from fairlane.ledger.postgres.fanout import cells_ended
from fairlane.ledger.postgres.fencing import HOLDS, HOLDS_AS_SEEN, present, too_late
from fairlane.ledger.postgres.job_lists import add_to_list
from fairlane.ledger.postgres.locks import hold_jobs
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.slots import free
from fairlane.ledger.postgres.transaction import PostgresTransaction
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
from fairlane.model.state import ENDED, Move, State

COMPLETE = f"""
UPDATE jobs SET state = 'completed', rev = rev + 1, seq = seq + 2, finished_at = v.now,
    step = step + 1, output = v.output, metrics = v.metrics, ended_by = jobs.token, token = NULL,
    lease_until = NULL, deadline = NULL, give_up_at = NULL
FROM {{results}}
WHERE {HOLDS} RETURNING v.token, v.id, v.now
"""
COMPLETE_ALL = Statement(
    COMPLETE.format(results=table("now bigint, output text, metrics text, id text, token text"))
)

ENDS = table(
    "state text, seq bigint, now bigint, step bigint, attempt bigint, code text, message text, "
    "seen_until bigint, id text, token text"
)
END = Statement(f"""
UPDATE jobs SET state = v.state, rev = rev + 1, seq = v.seq, written = v.seq,
    finished_at = v.now, step = v.step, attempt = v.attempt, error_code = v.code,
    error_message = v.message, token = NULL, lease_until = NULL, deadline = NULL, give_up_at = NULL
FROM {ENDS}
WHERE {HOLDS_AS_SEEN}
RETURNING v.token
""")

REQUEUES = table(
    "seq bigint, step bigint, lane text, attempt bigint, timeout bigint, ready_at bigint, "
    "give_up_at bigint, band bigint, seen_until bigint, id text, token text"
)
REQUEUE = Statement(f"""
UPDATE jobs SET state = 'queued', rev = rev + 1, seq = v.seq, written = v.seq, step = v.step,
    lane = v.lane, attempt = v.attempt, timeout = v.timeout, ready_at = v.ready_at,
    progress = NULL,
    give_up_at = v.give_up_at, band = v.band, token = NULL, lease_until = NULL, deadline = NULL
FROM {REQUEUES}
WHERE {HOLDS_AS_SEEN}
RETURNING v.token
""")

ATTEMPT_ROWS = table(
    "job text, fence bigint, token text, step bigint, number bigint, worker text, region text, "
    "started_at bigint, ended_at bigint, outcome text, fault text, message text"
)
ATTEMPTS = Statement(f"INSERT INTO attempts SELECT * FROM {ATTEMPT_ROWS}")
STEP_ROWS = table(
    "job text, step bigint, service text, output text, metrics text, attempts bigint, at bigint"
)
STEPS = Statement(f"INSERT INTO steps SELECT * FROM {STEP_ROWS}")
DISCARD = Statement(f"""
DELETE FROM steps USING {table("job text, step bigint")}
WHERE steps.job = v.job AND steps.step = v.step
""")
EVENTS = Statement(f"INSERT INTO events SELECT * FROM {table('job text, first bigint, body text')}")


async def settle(tx: PostgresTransaction, items: Sequence[Settlement]) -> list[Settled | Stale]:
    first: dict[str, Settlement] = {}
    for item in sorted(items, key=lambda item: item.lease.job):
        first.setdefault(item.lease.token, item)
    news = list(first.values())
    if len({_statement(item) for item in news}) > 1:
        await hold_jobs(tx, [item.lease.job for item in news])
    held = await _write(tx, news)
    winners = [item for token, item in first.items() if token in held]
    tx.running -= len(winners)
    await _enrol_ended(tx, winners)
    kept = await free(tx, items, held)
    parents = await _count_down_parents(tx, winners)
    for item in winners:
        await _account_for(tx, item)
    won = {id(item) for item in winners}
    jobs = await present(tx, [item for item in items if id(item) not in won])
    outcomes: list[Settled | Stale] = []
    for item in items:
        lease = item.lease
        if id(item) in won:
            slots, parent = kept.get(lease.token, ()), parents.get(lease.job, NO_NEWS)
            outcomes.append(
                Settled(
                    AFTER[item.move],
                    lease.rev + 1,
                    slots,
                    ended_parent=parent.ended,
                    stopping_parent=parent.stopping,
                )
            )
        else:
            outcomes.append(await too_late(tx, item, jobs.get(lease.job)))
    return outcomes


def _statement(item: Settlement) -> Statement:
    """The statement that writes this item's job. One statement locks jobs in order; if there are
    several, all jobs are locked before."""
    if item.move is Move.COMPLETE:
        return COMPLETE_ALL
    return REQUEUE if AFTER[item.move] is State.QUEUED else END


async def _write(tx: PostgresTransaction, items: Sequence[Settlement]) -> set[str]:
    """Write these settlements. Returns the tokens that held."""
    completed = [item for item in items if item.move is Move.COMPLETE]
    others = [item for item in items if item.move is not Move.COMPLETE]
    held = await _update(tx, COMPLETE_ALL, [complete_row(item) for item in completed])
    steps = [item for item in completed if item.lease.token in held and not fits(item)]
    if others:
        here = await _write_others(tx, others)
        held |= here
        steps += [i for i in others if i.lease.token in here and i.move is Move.ADVANCE]
    await _execute(tx, STEPS, [step_row(item) for item in steps])
    return held


async def _write_others(tx: PostgresTransaction, items: Sequence[Settlement]) -> set[str]:
    """Write settlements that do not complete a job, with the attempts and events that the row of a
    completed job would imply."""
    ends, requeues, told = [], [], {}
    for item in items:
        lease = item.lease
        facts = [*unwritten(lease), *item.facts]
        seq = lease.written + len(facts)
        told[lease.token] = (lease.job, lease.written + 1, facts_text(facts))
        if AFTER[item.move] is State.QUEUED:
            requeues.append(requeue_row(item, seq))
        else:
            ends.append(end_row(item, seq))
    held = await _update(tx, END, ends) | await _update(tx, REQUEUE, requeues)
    winners = [item for item in items if item.lease.token in held]
    await _execute(tx, ATTEMPTS, [attempt_row(item) for item in winners])
    await _execute(tx, EVENTS, [told[item.lease.token] for item in winners])
    again = [i for i in winners if i.step is not None and AFTER[i.move] is State.QUEUED]
    await _execute(tx, DISCARD, [discarded_row(item) for item in again])
    return held


async def _update(
    tx: PostgresTransaction, statement: Statement, rows: Sequence[tuple[Any, ...]]
) -> set[str]:
    if not rows:
        return set()
    return {row[0] for row in await tx.fetch(*statement.rows(rows))}


async def _execute(
    tx: PostgresTransaction, statement: Statement, rows: Sequence[tuple[Any, ...]]
) -> None:
    if rows:
        await tx.execute(*statement.rows(rows))


async def _enrol_ended(tx: PostgresTransaction, items: Sequence[Settlement]) -> None:
    ended: dict[State, list[Settlement]] = {}
    for item in items:
        if AFTER[item.move] in ENDED:
            ended.setdefault(AFTER[item.move], []).append(item)
    for state, those in ended.items():
        at = max(item.now for item in those)
        await add_to_list(tx, state, at, [item.lease.job for item in those])


async def _account_for(tx: PostgresTransaction, item: Settlement) -> None:
    """Write the consequences: the place in the queue, the outbox, and the refund of a skip that had
    no effect."""
    lease = item.lease
    if AFTER[item.move] is State.QUEUED:
        tx.line += 1
        tx.touched.append(lease.job)
    elif lease.paid_at and item.move is not Move.COMPLETE and lease.delivered == 0:
        await refund(tx, lease.job, item.now)


async def _count_down_parents(
    tx: PostgresTransaction, winners: Sequence[Settlement]
) -> dict[str, ParentNews]:
    """What the ended cells mean for their fan-outs, by the job that stands for them."""
    return {ended.job: await cells_ended(tx, ended) for ended in settled_cells(winners)}
