"""Administration in PostgreSQL: users, credits, limits, live settings, workers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from fairlane.errors import FairlaneError
from fairlane.ledger import rows, worker_specs
from fairlane.ledger.credit_account_names import (
    MINT,
    account_of,
    credit_operation,
    reused,
)
from fairlane.ledger.messages import (
    AuditedChange,
    PoolLimit,
    SettingChange,
    Stamp,
    StoredSettings,
    Superseded,
)
from fairlane.ledger.postgres import epochs
from fairlane.ledger.postgres.credits import balance, booked, transfer
from fairlane.ledger.postgres.job_lists import IS_LEASED
from fairlane.ledger.postgres.locks import hold_jobs
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.read_connection import Connection, snapshot
from fairlane.ledger.postgres.transaction import SETTINGS_LOCK, PostgresTransaction
from fairlane.ledger.requests import (
    MAX_ADDED_POOLS,
    AddedPools,
    Grant,
    LimitsChange,
    QuotaChange,
    TierChange,
)
from fairlane.model.step import service_of
from fairlane.model.worker import Worker, WorkerState

CHANGES_LOCK = 4219
"""Advisory lock: audited changes are serialized, so that each knows the value it replaces."""

LOCK = "SELECT pg_advisory_xact_lock($1)"


SET_TIER = Statement("""
INSERT INTO users (tenant, id, tier, changed_at) VALUES (:tenant, :id, :tier, :now)
ON CONFLICT (tenant, id) DO UPDATE SET tier = :tier, changed_at = :now
""")
SET_QUOTA = Statement("""
INSERT INTO quotas (tenant, username, pending, per_hour)
VALUES (:tenant, :username, :pending, :per_hour)
""")


async def set_tier(tx: PostgresTransaction, items: Sequence[TierChange]) -> list[None]:
    await tx.execute(LOCK, CHANGES_LOCK)
    for item in items:
        target = f"{item.tenant}/{item.user}"
        if await _is_made(tx, item.now, item.actor, "set tier", target, item.tier):
            continue
        before = await tx.fetchval(
            "SELECT tier FROM users WHERE tenant = $1 AND id = $2", item.tenant, item.user
        )
        await tx.execute(*SET_TIER(tenant=item.tenant, id=item.user, tier=item.tier, now=item.now))
        await audited(
            tx, AuditedChange(item.now, item.actor, "set tier", target, before, item.tier)
        )
    return [None] * len(items)


async def set_quota(tx: PostgresTransaction, items: Sequence[QuotaChange]) -> list[None]:
    await tx.execute(LOCK, CHANGES_LOCK)
    for item in items:
        target = f"{item.tenant}/{item.user}"
        after = rows.dumps([item.pending, item.per_hour])
        if await _is_made(tx, item.now, item.actor, "set quota", target, after):
            continue
        row = await tx.fetchrow(
            "DELETE FROM quotas WHERE tenant = $1 AND username = $2 RETURNING pending, per_hour",
            item.tenant,
            item.user,
        )
        if item.pending is not None or item.per_hour is not None:
            quota = SET_QUOTA(
                tenant=item.tenant,
                username=item.user,
                pending=item.pending,
                per_hour=item.per_hour,
            )
            await tx.execute(*quota)
        before = rows.dumps(list(row)) if row is not None else None
        await audited(tx, AuditedChange(item.now, item.actor, "set quota", target, before, after))
    return [None] * len(items)


IS_MADE = Statement("""
SELECT true FROM (SELECT at, actor, action, target, after FROM audit ORDER BY seq DESC LIMIT 1000) a
WHERE at = :at AND actor = :actor AND action = :action AND target = :target AND after = :after
LIMIT 1
""")
AUDIT = Statement("""
INSERT INTO audit (at, actor, action, target, before, after)
VALUES (:at, :actor, :action, :target, :before, :after)
""")


async def _is_made(
    tx: PostgresTransaction, at: int, actor: str, action: str, target: str, after: str
) -> bool:
    """Whether this change was committed before and its response was lost. The audit log tells, even
    if the setting was changed again since."""
    made = IS_MADE(at=at, actor=actor, action=action, target=target, after=after)
    return await tx.fetchval(*made) is not None


async def audited(tx: PostgresTransaction, change: AuditedChange) -> None:
    await tx.execute(*AUDIT(**change._asdict()))


async def audit(connection: Connection, limit: int) -> list[AuditedChange]:
    found = await connection.fetch(
        "SELECT at, actor, action, target, before, after FROM audit ORDER BY seq DESC LIMIT $1",
        limit,
    )
    return [AuditedChange(*row) for row in found]


async def credit(tx: PostgresTransaction, items: Sequence[Grant]) -> list[int | FairlaneError]:
    outcomes: list[int | FairlaneError] = []
    await tx.execute(LOCK, CHANGES_LOCK)
    for item in items:
        account = account_of(item.tenant, item.user)
        source, target = (MINT, account) if item.amount >= 0 else (account, MINT)
        operation = credit_operation(account, item.operation)
        amount = abs(item.amount)
        was = await booked(tx, operation, account)
        if was not in (None, item.amount):
            outcomes.append(reused(item.operation, was))
            continue
        refusal = await transfer(tx, operation, source, target, amount, item.now, item.note)
        after = await balance(tx, account)
        if was is None and refusal is None:
            change = (str(after - item.amount), str(after))
            who = f"{item.tenant}/{item.user}"
            await audited(tx, AuditedChange(item.now, item.actor, "add credits", who, *change))
        outcomes.append(refusal or after)
    return outcomes


# --- limits and settings -------------------------------------------------------------------------
async def set_pools(
    tx: PostgresTransaction, items: Sequence[LimitsChange]
) -> list[Stamp | Superseded | None]:
    """Set limits under an exclusive lock. Claims wait meanwhile, so limits never change between a
    claim's check and its insert."""
    await tx.execute(LOCK, SETTINGS_LOCK)
    running = [each for item in items for each in (await _uncounted(tx, item.pools)).values()]
    await hold_jobs(tx, [job for those in running for job in those])
    return [await _set_pools(tx, item) for item in items]


async def _set_pools(tx: PostgresTransaction, item: LimitsChange) -> Stamp | Superseded | None:
    """Limit exactly these pools from now on, and store the change that did so. Idempotent: a change
    that was committed and whose response was lost is not made again."""
    was = await epochs.stamp(tx)
    if item.change is not None and await _is_set(tx, item.change):
        return was if await epochs.meta(tx, "catalog") == item.catalog else Superseded(was)
    if was.settings != item.over:
        return None
    names = [pool.name for pool in item.pools]
    gone = await tx.fetch("DELETE FROM pools WHERE name <> ALL($1::text[]) RETURNING 1", names)
    news = bool(gone) or await epochs.meta(tx, "catalog") != item.catalog
    uncounted = await _uncounted(tx, item.pools)
    for pool in item.pools:
        news = await _set_pool(tx, pool, uncounted[pool.name]) or news
    if item.change is not None:
        await _keep(tx, item.change)
    now = Stamp(was.life, was.settings + (news or item.change is not None))
    await epochs.set_meta(tx, epoch=str(now), catalog=item.catalog, file=item.file)
    return now


FORGET_IDLE = """
DELETE FROM pools WHERE name <> ALL($1::text[])
AND (SELECT count(*) FROM pools) > $2
AND NOT EXISTS (SELECT 1 FROM slots WHERE slots.pool = pools.name)
"""


async def add_pools(tx: PostgresTransaction, items: Sequence[AddedPools]) -> list[None]:
    """Limit more pools. Claims wait meanwhile, as in `set_pools`."""
    await tx.execute(LOCK, SETTINGS_LOCK)
    running = [each for item in items for each in (await _uncounted(tx, item.pools)).values()]
    await hold_jobs(tx, [job for those in running for job in those])
    for item in items:
        await _add_pools(tx, item)
    return [None] * len(items)


async def _add_pools(tx: PostgresTransaction, item: AddedPools) -> None:
    if (await epochs.stamp(tx)).settings != item.over:
        return
    most = len(item.configured) + MAX_ADDED_POOLS
    await tx.execute(FORGET_IDLE, item.configured, most)
    uncounted = await _uncounted(tx, item.pools)
    for pool in item.pools:
        await _set_pool(tx, pool, uncounted[pool.name])


async def _is_set(tx: PostgresTransaction, change: SettingChange) -> bool:
    value = rows.dumps(change.value)
    return await _is_made(tx, change.now, change.actor, "set", change.name, value)


async def _set_pool(tx: PostgresTransaction, pool: PoolLimit, uncounted: dict[str, str]) -> bool:
    """Set one pool's limit. Returns whether anything changed. Running jobs take their slots while
    no limit is set that would refuse them."""
    size = await tx.fetchval("SELECT size FROM pools WHERE name = $1", pool.name)
    if size == pool.size and not uncounted:
        return False
    await tx.execute("DELETE FROM pools WHERE name = $1", pool.name)
    await _count(tx, pool, uncounted)
    await tx.execute(
        "INSERT INTO pools (name, size, drain) "
        "SELECT $1, $2, coalesce(max(n), 0) FROM slots WHERE pool = $1",
        pool.name,
        pool.size,
    )
    return True


COUNTED = "SELECT pool, token FROM slots WHERE pool = ANY($1::text[])"
RUNNING = f"SELECT id, token, lane, region FROM jobs WHERE {IS_LEASED}"


async def _uncounted(
    tx: PostgresTransaction, pools: Sequence[PoolLimit]
) -> dict[str, dict[str, str]]:
    """The running jobs without a slot in each of these pools, and their tokens. No job starts
    meanwhile. The query waits for jobs that are just ending, so that no slot is taken for an ended
    lease. It reads slots first: a job that ends in between has no slot left and no longer runs."""
    counted = {tuple(row) for row in await tx.fetch(COUNTED, [pool.name for pool in pools])}
    running = [
        (job, token, service_of(lane), region)
        for job, token, lane, region in await tx.fetch(RUNNING)
    ]
    return {
        pool.name: {
            job: token
            for job, token, service, region in running
            if service in pool.services
            and pool.region in (None, region)
            and (pool.name, token) not in counted
        }
        for pool in pools
    }


COUNT = Statement(f"""
INSERT INTO slots (pool, n, token, job)
SELECT :pool, v.n, v.token, v.job FROM {table("n bigint, token text, job text")}
""")


async def _count(tx: PostgresTransaction, pool: PoolLimit, running: dict[str, str]) -> None:
    """Give running jobs a slot, even above the limit. The pool drains; no job is killed."""
    if not running:
        return
    found = await tx.fetch("SELECT n FROM slots WHERE pool = $1", pool.name)
    taken = {row[0] for row in found}
    free = (n for n in itertools.count(1) if n not in taken)
    numbers = list(itertools.islice(free, len(running)))
    await tx.execute(
        *COUNT(pool=pool.name, n=numbers, token=list(running.values()), job=list(running))
    )


KEEP = Statement("""
INSERT INTO settings (name, value, file_value, changed_at) VALUES (:name, :value, :file_value, :now)
ON CONFLICT (name) DO UPDATE SET value = :value, file_value = :file_value, changed_at = :now
""")


async def _keep(tx: PostgresTransaction, item: SettingChange) -> None:
    await tx.execute(LOCK, CHANGES_LOCK)
    before = await tx.fetchval("SELECT value FROM settings WHERE name = $1", item.name)
    value = rows.dumps(item.value)
    file_value = rows.dumps(item.file_value)
    await tx.execute(*KEEP(name=item.name, value=value, file_value=file_value, now=item.now))
    await audited(tx, AuditedChange(item.now, item.actor, "set", item.name, before, value))


async def settings(connection: Connection) -> StoredSettings:
    async with snapshot(connection):
        found = await connection.fetch("SELECT name, value, file_value FROM settings")
        catalog = await epochs.meta(connection, "catalog")
        file = await epochs.meta(connection, "file")
        return StoredSettings(
            await epochs.stamp(connection), catalog, file, worker_specs.changes(found)
        )


# --- workers -------------------------------------------------------------------------------------
PUT_WORKER = Statement("""
INSERT INTO workers (id, spec, state, heartbeat_at) VALUES (:id, :spec, :state, :now)
ON CONFLICT (id) DO UPDATE SET spec = :spec, state = :state, heartbeat_at = :now
""")


async def put_worker(tx: PostgresTransaction, items: Sequence[tuple[Worker, int]]) -> list[None]:
    for worker, now in sorted(items, key=lambda item: item[0].id):
        spec = worker_specs.worker_spec(worker)
        await tx.execute(*PUT_WORKER(id=worker.id, spec=spec, state=worker.state, now=now))
    return [None] * len(items)


HEAR = """
UPDATE workers SET heartbeat_at = greatest(heartbeat_at, $3), state = CASE
    WHEN 'dead' IN (state, $2) THEN 'dead'
    WHEN 'draining' IN (state, $2) THEN 'draining' ELSE 'active' END
WHERE id = $1 RETURNING id, spec, state, heartbeat_at
"""


async def record_heartbeat(
    tx: PostgresTransaction, items: Sequence[tuple[str, WorkerState, int]]
) -> list[Worker | None]:
    """Heartbeats, as (worker, state, now). A worker's state only moves forward."""
    in_order = sorted(enumerate(items), key=lambda each: each[1][0])
    found = {i: await _heard(tx, *item) for i, item in in_order}
    return [found[i] for i in range(len(items))]


async def _heard(
    tx: PostgresTransaction, worker: str, state: WorkerState, now: int
) -> Worker | None:
    found = worker_specs.workers(await tx.fetch(HEAR, worker, state, now))
    return found[0][0] if found else None


FORGET = """
WITH gone AS (
    DELETE FROM workers WHERE id IN (
        SELECT id FROM workers WHERE heartbeat_at < $1 FOR UPDATE SKIP LOCKED)
    RETURNING 1
)
SELECT count(*) FROM gone
"""


async def forget_workers(tx: PostgresTransaction, items: Sequence[int]) -> list[int]:
    """Delete workers without a heartbeat since then."""
    return [int(await tx.fetchval(FORGET, before)) for before in items]


async def worker(connection: Connection, name: str) -> Worker | None:
    columns = "SELECT id, spec, state, heartbeat_at FROM workers WHERE id = $1"
    found = worker_specs.workers(await connection.fetch(columns, name))
    return found[0][0] if found else None


async def workers(connection: Connection) -> list[tuple[Worker, int]]:
    return worker_specs.workers(
        await connection.fetch("SELECT id, spec, state, heartbeat_at FROM workers ORDER BY id")
    )
