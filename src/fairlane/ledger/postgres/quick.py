"""The common case of the hot verbs: one statement, which is its own transaction.

What cannot be decided in one statement is left to the verb itself, and nothing has happened then:
keys, counted users, fan-outs, a slot that is not free, any ending but success."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import asyncpg

from fairlane.ledger.endings import complete_row, fits
from fairlane.ledger.grants import wrong_epoch_or_pools
from fairlane.ledger.postgres import confirm as confirming
from fairlane.ledger.postgres import settle as settling
from fairlane.ledger.postgres import submit as submitting
from fairlane.ledger.postgres.confirm import RETURNED, START, found_leases, loser, start_values
from fairlane.ledger.postgres.reading import Connection
from fairlane.ledger.postgres.settle import COMPLETE, present, too_late
from fairlane.ledger.postgres.slots import slot_values
from fairlane.ledger.postgres.submit import ALMOST, INSERT, LINE, values
from fairlane.ledger.postgres.transaction import Verb
from fairlane.ledger.rows import INLINE
from fairlane.ledger.shapes import (
    Accepted,
    Confirmation,
    Settled,
    Settlement,
    Stale,
    Submission,
    SubmitOutcome,
    Unconfirmed,
)
from fairlane.model.lease import Lease
from fairlane.model.service import is_user_pool
from fairlane.model.state import Move, State


class Beside(NamedTuple):
    """What goes along: outbox rows that may go, and the part of the line to count in."""

    cleared: list[int]
    part: int


class Written(NamedTuple):
    outcomes: list[Any]
    receipts: tuple[int, ...] = ()


Quick = Callable[[Connection, Sequence[Any], Beside], Awaitable[Written | None]]
"""None = nothing was written; the verb has to decide."""

# --- submit --------------------------------------------------------------------------------------
SUBMIT = f"""
WITH fit AS MATERIALIZED (
    SELECT (SELECT count(*) = 0 FROM quotas
            JOIN unnest($22::text[], $23::text[]) u (tenant, name)
                ON quotas.tenant = u.tenant AND quotas.username = u.name)
        AND ($24 = 0 OR ({LINE}) + $25 + {ALMOST} <= $24) AS ok
), new AS (
    {INSERT} WHERE (SELECT ok FROM fit)
), counted AS (
    UPDATE line SET queued = queued + $25 WHERE part = $26 AND (SELECT ok FROM fit)
), cleared AS (
    DELETE FROM outbox WHERE seq = ANY($27::bigint[])
)
INSERT INTO outbox (jobs) SELECT $1 WHERE (SELECT ok FROM fit) RETURNING seq
"""


async def submit(
    connection: Connection, items: Sequence[Submission], beside: Beside
) -> Written | None:
    most = 0
    users: set[tuple[str, str]] = set()
    for item in items:
        quota = item.quota
        if (
            item.idempotency is not None
            or item.cells
            or item.refusal is not None
            or quota.pending
            or quota.per_hour
            or len(item.input) > INLINE
        ):
            return None
        if item.user is not None:
            users.add((item.tenant, item.user))
        if quota.waiting:
            most = min(most or quota.waiting, quota.waiting)
    tenants, names = [tenant for tenant, _ in users], [name for _, name in users]
    number = len(items)
    try:
        seq = await connection.fetchval(
            SUBMIT, *values(items), tenants, names, most, number, beside.part, beside.cleared
        )
    except asyncpg.UniqueViolationError:  # run again after a lost answer
        return None
    if seq is None:
        return None
    outcomes: list[SubmitOutcome] = [Accepted(item.id) for item in items]
    return Written(outcomes, (seq,))


# --- confirm -------------------------------------------------------------------------------------
CONFIRM = f"""
WITH held AS MATERIALIZED (SELECT hold_settings($11::text[]) AS epoch),
started AS ({START} AND (SELECT epoch FROM held) = $12 RETURNING {RETURNED}),
parents AS (
    UPDATE jobs SET state = 'running', rev = rev + 1, started_at = $13
    WHERE id IN (SELECT parent FROM started WHERE parent IS NOT NULL) AND state = 'queued'
), counted AS (
    UPDATE line SET queued = queued - (SELECT count(*) FROM started) WHERE part = $14
), cleared AS (
    DELETE FROM outbox WHERE seq = ANY($15::bigint[])
)
"""
CONFIRM_FREELY = f"{CONFIRM} SELECT * FROM started"
CONFIRM_WITH_SLOTS = f"""{CONFIRM}, taken AS (
    INSERT INTO slots SELECT s.* FROM unnest($16::text[], $17::bigint[], $18::text[], $19::text[],
        $20::bigint[]) s (pool, n, token, job, until)
    WHERE s.token IN (SELECT token FROM started)
)
SELECT * FROM started
"""


async def confirm(
    connection: Connection, items: Sequence[Confirmation], beside: Beside
) -> Written | None:
    epoch, slots = items[0].epoch, False
    limited: set[str] = set()
    for item in items:
        if wrong_epoch_or_pools(item, epoch) is not None:
            return None
        if item.slots:
            slots = True
            limited.update(item.pools)
    if any(map(is_user_pool, limited)):
        return None
    common = *start_values(items), list(limited), epoch, items[0].now, beside.part, beside.cleared
    try:
        if slots:
            wanted = [(slot.pool, slot.n, item) for item in items for slot in item.slots]
            found = await connection.fetch(CONFIRM_WITH_SLOTS, *common, *slot_values(wanted))
        else:
            found = await connection.fetch(CONFIRM_FREELY, *common)
    except asyncpg.IntegrityConstraintViolationError:
        return None
    if slots and not found:
        return None
    leases = await found_leases(connection, items, {row[0]: row for row in found})
    return Written([leases.get(item.token) or await _loser(connection, item) for item in items])


async def _loser(connection: Connection, item: Confirmation) -> Lease | Unconfirmed:
    epoch = await connection.fetchval("SELECT value FROM meta WHERE name = 'epoch'")
    return await loser(connection, item, wrong_epoch_or_pools(item, epoch))


# --- settle --------------------------------------------------------------------------------------
SETTLE = f"""
WITH done AS ({COMPLETE}), freed AS (
    DELETE FROM slots WHERE token = ANY($5::text[]) AND pool NOT LIKE 'rate:%'
), cleared AS (
    DELETE FROM outbox WHERE seq = ANY($6::bigint[])
)
SELECT * FROM done
"""


async def settle(
    connection: Connection, items: Sequence[Settlement], beside: Beside
) -> Written | None:
    for item in items:
        if (
            item.move is not Move.COMPLETE
            or item.lease.parent is not None
            or not item.closed
            or not fits(item)
        ):
            return None
    rows = sorted(map(complete_row, items), key=itemgetter(3))
    found = await connection.fetch(SETTLE, *zip(*rows, strict=True), beside.cleared)
    held = {row[0] for row in found}
    outcomes: list[Settled | Stale | None] = []
    late: list[Settlement] = []
    for item in items:
        if item.lease.token in held:
            held.discard(item.lease.token)
            outcomes.append(Settled(State.COMPLETED, item.lease.rev + 1))
        else:
            outcomes.append(None)
            late.append(item)
    if late:
        jobs = await present(connection, late)
        for i, item in enumerate(items):
            if outcomes[i] is None:
                outcomes[i] = await too_late(connection, item, jobs.get(item.lease.job))
    return Written(outcomes)


QUICK: dict[Verb, Quick] = {
    submitting.submit: submit,
    confirming.confirm: confirm,
    settling.settle: settle,
}
