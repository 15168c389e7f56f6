"""Confirm in PostgreSQL: grant a lease for each proposal of the index, or refuse it, item by
item."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter

from fairlane.ledger.claim_rows import COLUMNS, granted, reason, wrong_epoch_or_pools
from fairlane.ledger.messages import Confirmation, Unconfirmed
from fairlane.ledger.postgres.events import find
from fairlane.ledger.postgres.job_context import contexts, inputs_elsewhere
from fairlane.ledger.postgres.job_lists import LEASED, add_to_list
from fairlane.ledger.postgres.locks import hold_jobs
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.slots import hold, take, take_all
from fairlane.ledger.postgres.transaction import SETTINGS_LOCK, PostgresTransaction, Reader, Row
from fairlane.ledger.rows import loads
from fairlane.model.lease import Lease

RETURNED = ", ".join(f"jobs.{column}" for column in COLUMNS.split(", "))

BEGIN = "greatest(v.now, created_at, promoted_at, paid_at)"
"""When a job starts: not before any event that was already reported for it. The job was queued by
`ready_at` at the latest."""

START = """
UPDATE jobs SET state = 'running', rev = jobs.rev + 1, seq = seq + 1, attempt = attempt + 1,
    fence = fence + 1, token = v.token, worker = v.worker, region = v.region, lease = v.lease,
    lease_until = {begin} + least(v.lease, timeout), deadline = {begin} + timeout,
    started_at = {begin}, waited = waited + v.now - ready_at
FROM {proposals}
WHERE jobs.id = v.id AND jobs.rev = v.rev AND jobs.state = 'queued' AND jobs.cells = 0
    AND jobs.ready_at <= v.now AND jobs.lane = v.lane AND jobs.tier = v.tier
    AND coalesce(tenant || ':u:' || username, tenant || ':k:' || key) = v.who
"""
PROPOSALS = table(
    "id text, rev bigint, lane text, tier text, who text, token text, worker text, region text, "
    "lease bigint, now bigint"
)
proposal_row = attrgetter(
    "job", "rev", "lane", "tier", "user", "token", "worker", "region", "lease", "now"
)

START_ALL = Statement(f"{START.format(proposals=PROPOSALS, begin=BEGIN)} RETURNING {RETURNED}")


async def confirm(
    tx: PostgresTransaction, items: Sequence[Confirmation]
) -> list[Lease | Unconfirmed]:
    await tx.execute("SELECT pg_advisory_xact_lock_shared($1)", SETTINGS_LOCK)
    epoch = await tx.fetchval("SELECT value FROM meta WHERE name = 'epoch'")
    refused: dict[int, Unconfirmed] = {}
    hopeful: list[Confirmation] = []
    for i, item in enumerate(items):
        refusal = wrong_epoch_or_pools(item, epoch)
        if refusal is not None:
            refused[i] = refusal
        else:
            hopeful.append(item)
    rows = await _start(tx, hopeful)
    if rows is None:
        rows = await _start_one_by_one(tx, items, refused)
    leases = await found_leases(tx, items, rows)
    tx.line -= len(rows)
    tx.running += len(rows)
    if leases:
        until = min(lease.lease_until for lease in leases.values())
        await add_to_list(tx, LEASED, until, [lease.job for lease in leases.values()])
    for parent in sorted({lease.parent for lease in leases.values() if lease.parent is not None}):
        await _start_parent(tx, parent, items[0].now)
    return [
        leases.get(item.token) or await unstarted_outcome(tx, item, refused.get(i))
        for i, item in enumerate(items)
    ]


class _NoRoom(Exception):
    """Rolls back the started jobs; never leaves this module."""


async def _start(tx: PostgresTransaction, items: Sequence[Confirmation]) -> dict[str, Row] | None:
    """Start all items at once, because almost always every slot is free. Returns None, with nothing
    written, if a slot is not free."""
    if not any(item.slots for item in items):
        return await _update(tx, items)
    try:
        async with tx.savepoint():
            return await _update_and_take(tx, items)
    except _NoRoom:
        return None


async def _update_and_take(
    tx: PostgresTransaction, items: Sequence[Confirmation]
) -> dict[str, Row]:
    rows = await _update(tx, items)
    if not await take_all(tx, [item for item in items if item.token in rows]):
        raise _NoRoom
    return rows


async def _update(tx: PostgresTransaction, items: Sequence[Confirmation]) -> dict[str, Row]:
    if not items:
        return {}
    proposals = sorted(map(proposal_row, items), key=itemgetter(0))  # jobs are locked in order
    return {row[0]: row for row in await tx.fetch(*START_ALL.rows(proposals))}


async def _start_one_by_one(
    tx: PostgresTransaction, items: Sequence[Confirmation], refused: dict[int, Unconfirmed]
) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    hopeful = [(i, item) for i, item in enumerate(items) if i not in refused]
    await hold(tx, [item for _, item in hopeful])
    await hold_jobs(tx, [item.job for _, item in hopeful])
    for i, item in sorted(hopeful, key=lambda each: sorted(each[1].slots)):
        refusal = await take(tx, item)
        if refusal is not None:
            refused[i] = refusal
            continue
        rows.update(await _update(tx, [item]))
    return rows


async def found_leases(
    tx: Reader, items: Sequence[Confirmation], rows: dict[str, Row]
) -> dict[str, Lease]:
    context = await contexts(tx, [row[1] for row in rows.values() if row[6]])
    inputs = await inputs_elsewhere(tx, [row[1] for row in rows.values() if row[8] is None])
    found = {}
    for item in items:
        row = rows.get(item.token)
        if row is not None:
            sent = inputs[item.job] if row[8] is None else loads(row[8])
            found[item.token] = granted(item, row, sent, context.get(item.job, {}))
    return found


# --- those that did not start ------------------------------------------------------------------
async def unstarted_outcome(
    tx: Reader, item: Confirmation, refusal: Unconfirmed | None
) -> Lease | Unconfirmed:
    """The outcome of an item that did not start. A repeated proposal gets the same lease as before;
    any other gets the reason for its refusal."""
    job = await find(tx, item.job, lock=False)
    if job is not None and job.token == item.token:
        return await _again(tx, item)
    if refusal is not None:
        return refusal
    await tx.execute("DELETE FROM slots WHERE token = $1", item.token)
    return Unconfirmed(reason(item, job))


async def _again(tx: Reader, item: Confirmation) -> Lease:
    (row,) = await tx.fetch(f"SELECT {COLUMNS} FROM jobs WHERE id = $1", item.job)
    return (await found_leases(tx, [item], {item.token: row}))[item.token]


async def _start_parent(tx: PostgresTransaction, parent: str, now: int) -> None:
    """A fan-out runs from the start of its first cell."""
    await tx.execute(
        "UPDATE jobs SET state = 'running', rev = rev + 1, started_at = $1 "
        "WHERE id = $2 AND state = 'queued'",
        now,
        parent,
    )
