"""Retention: how long ended jobs, their records and idempotency keys are kept."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.messages import AuditedChange
from fairlane.ledger.postgres.admin import audited
from fairlane.ledger.postgres.job_lists import add_to_list
from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.requests import Purge, Retirement
from fairlane.model.state import ENDED, State

MAX_ROUNDS = 5
"""How often jobs that had to stay are tried again in one call: a fan-out is deleted after its
cells."""

Gone = tuple[str, str]
"""A job, and how it ended."""

DUE = Statement("""
SELECT rolls.kind, rolls.at, rolls.seq, rolls.jobs FROM rolls JOIN (
    SELECT kind, at, seq, sum(number) OVER (ORDER BY at, seq) - number AS earlier FROM (
        SELECT kind, at, seq, number FROM rolls
        WHERE (kind = ANY(:kinds::text[]) AND at <= :finished_before)
            OR (kind = 'dead' AND at <= :dead_before)
        ORDER BY at, seq LIMIT :limit
    ) oldest
) due USING (kind, at, seq)
WHERE due.earlier < :limit ORDER BY at, seq FOR UPDATE OF rolls SKIP LOCKED
""")
REMOVE_FROM_LIST = "DELETE FROM rolls WHERE kind = $1 AND at = $2 AND seq = $3"
BUT_DEAD = [str(state) for state in ENDED - {State.DEAD}]

OVER = """
SELECT id, state, parent FROM jobs WHERE id = ANY($3::text[]) AND finished_at <= $1
AND (state <> 'dead' OR finished_at <= $2)
AND (parent IS NULL OR NOT EXISTS (
    SELECT 1 FROM jobs p WHERE p.id = jobs.parent
        AND (p.finished_at IS NULL OR p.finished_at > $1)))
AND (cells = 0 OR NOT EXISTS (SELECT 1 FROM jobs cell WHERE cell.parent = jobs.id))
AND id NOT IN (SELECT unnest(outbox.jobs) FROM outbox)
FOR UPDATE SKIP LOCKED
"""
ENDED_PARENTS = """
SELECT id FROM jobs WHERE id = ANY($1::text[]) AND finished_at IS NOT NULL FOR SHARE SKIP LOCKED
"""
"""Parents locked against being reopened until the transaction ends. A parent that is just being
reopened is skipped."""

STAYS = """
SELECT id FROM jobs WHERE id = ANY($1::text[]) AND state = $2
"""
REMEMBER = """
WITH used AS (
    SELECT i.scope, i.key, v.state FROM unnest($1::text[], $2::text[]) v (job, state)
    JOIN idempotency i ON i.job = v.job
    ORDER BY i.scope COLLATE "C", i.key COLLATE "C" FOR UPDATE OF i
)
UPDATE idempotency SET status = used.state FROM used
WHERE idempotency.scope = used.scope AND idempotency.key = used.key
"""
FORGET_KEYS = """
WITH due AS (
    SELECT scope, key FROM idempotency WHERE at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM idempotency USING due
    WHERE idempotency.scope = due.scope AND idempotency.key = due.key RETURNING 1
)
SELECT count(*) FROM gone
"""


async def retire(tx: PostgresTransaction, items: Sequence[Retirement]) -> list[int]:
    gone = [await _retire(tx, item) for item in items]
    await _remember(tx, [each for those in gone for each in those])
    keys = [await tx.fetchval(FORGET_KEYS, item.keys_before, item.limit) for item in items]
    return [max(len(jobs), number) for jobs, number in zip(gone, keys, strict=True)]


async def _retire(tx: PostgresTransaction, item: Retirement) -> list[Gone]:
    """Delete jobs, oldest first."""
    gone: list[Gone] = []
    for _ in range(MAX_ROUNDS):
        due = await _due(tx, item, item.limit - len(gone))
        if not due:
            break
        gone += await _remove(tx, item, [job for _, jobs in due for job in jobs])
        for kind, jobs in due:
            stay = [row[0] for row in await tx.fetch(STAYS, jobs, kind)]
            before = item.dead_before if kind == State.DEAD else item.finished_before
            await add_to_list(tx, kind, before, stay)
        if len(gone) >= item.limit:
            break
    return gone


async def _due(
    tx: PostgresTransaction, item: Retirement, limit: int
) -> list[tuple[str, list[str]]]:
    """Take (state, jobs) off the job lists, at most `limit` jobs, which no other transaction has.
    Jobs that must stay are added again after all that are due, so none starves."""
    found: list[tuple[str, list[str]]] = []
    due = DUE(
        kinds=BUT_DEAD,
        finished_before=item.finished_before,
        dead_before=item.dead_before,
        limit=limit,
    )
    for kind, at, seq, jobs in await tx.fetch(*due):
        mine, rest = jobs[:limit], jobs[limit:]
        limit -= len(mine)
        await tx.execute(REMOVE_FROM_LIST, kind, at, seq)
        await add_to_list(tx, kind, at, rest)
        found.append((kind, mine))
    return found


async def _remove(tx: PostgresTransaction, item: Retirement, jobs: Sequence[str]) -> list[Gone]:
    """Delete these jobs, except cells of a parent that lives, is kept or is being reopened, parents
    of cells that are kept, jobs that the outbox still names, and jobs that another process has
    locked."""
    found = await tx.fetch(OVER, item.finished_before, item.dead_before, jobs)
    parents = sorted({parent for _, _, parent in found if parent is not None})
    ended = {row[0] for row in await tx.fetch(ENDED_PARENTS, parents)} if parents else set()
    gone = [(job, state) for job, state, parent in found if parent is None or parent in ended]
    await _forget(tx, [job for job, _ in gone])
    return gone


async def _remember(tx: PostgresTransaction, gone: Sequence[Gone]) -> None:
    """Store in the idempotency keys how their jobs ended."""
    if gone:
        await tx.execute(REMEMBER, *zip(*gone, strict=True))


async def _forget(tx: PostgresTransaction, ids: Sequence[str]) -> None:
    if not ids:
        return
    for table in ("steps", "attempts", "events", "inputs"):
        await tx.execute(f"DELETE FROM {table} WHERE job = ANY($1::text[])", ids)
    await tx.execute("DELETE FROM jobs WHERE id = ANY($1::text[])", ids)


# --- purging dead letters ------------------------------------------------------------------------
DEAD = """
SELECT jobs.id, jobs.tenant FROM unnest($1::text[], $2::text[]) v (id, tenant)
JOIN jobs ON jobs.id = v.id AND jobs.tenant = v.tenant
WHERE state = 'dead' AND parent IS NULL AND cells = 0 ORDER BY jobs.id FOR UPDATE OF jobs
"""


async def purge(tx: PostgresTransaction, items: Sequence[Purge]) -> list[int]:
    named = [(job, item.tenant) for item in items for job in item.jobs]
    jobs, tenants = [job for job, _ in named], [tenant for _, tenant in named]
    dead = {(job, tenant) for job, tenant in await tx.fetch(DEAD, jobs, tenants)}
    await _forget(tx, [job for job, _ in dead])
    await _remember(tx, [(job, "dead") for job, _ in dead])
    done = []
    for item in items:
        found = sorted(dead & {(job, item.tenant) for job in item.jobs})
        dead -= set(found)
        for job, _ in found:
            await audited(tx, AuditedChange(item.now, item.actor, "purge", job, "dead", None))
        done.append(len(found))
    return done
