"""Administration in SQLite: users, credits, limits, live settings, workers."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence

from fairlane.errors import FairlaneError
from fairlane.ledger import rows, worker_specs
from fairlane.ledger.credit_account_names import (
    MINT,
    account_of,
    credit_operation,
    reused,
)
from fairlane.ledger.messages import AuditedChange, PoolLimit, SettingChange, Stamp, StoredSettings
from fairlane.ledger.requests import (
    MAX_ADDED_POOLS,
    AddedPools,
    Grant,
    LimitsChange,
    QuotaChange,
    TierChange,
)
from fairlane.ledger.sqlite.credits import balance, booked, transfer
from fairlane.ledger.sqlite.epochs import meta, set_meta, stamp
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.step import service_of
from fairlane.model.worker import Worker, WorkerState


def set_tier(tx: SqliteTransaction, items: Sequence[TierChange]) -> list[None]:
    for item in items:
        target = f"{item.tenant}/{item.user}"
        if _is_made(tx, item.now, item.actor, "set tier", target, item.tier):
            continue
        row = tx.execute(
            "SELECT tier FROM users WHERE tenant = ? AND id = ?", (item.tenant, item.user)
        ).fetchone()
        tx.execute(
            "INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?)",
            (item.tenant, item.user, item.tier, item.now),
        )
        before = row[0] if row else None
        audited(tx, item.now, item.actor, "set tier", target, before, item.tier)
    return [None] * len(items)


def set_quota(tx: SqliteTransaction, items: Sequence[QuotaChange]) -> list[None]:
    for item in items:
        who = (item.tenant, item.user)
        after = rows.dumps([item.pending, item.per_hour])
        if _is_made(tx, item.now, item.actor, "set quota", "/".join(who), after):
            continue
        row = tx.execute(
            "SELECT pending, per_hour FROM quotas WHERE tenant = ? AND user = ?", who
        ).fetchone()
        tx.execute("DELETE FROM quotas WHERE tenant = ? AND user = ?", who)
        if item.pending is not None or item.per_hour is not None:
            tx.execute(
                "INSERT INTO quotas VALUES (?, ?, ?, ?)", (*who, item.pending, item.per_hour)
            )
        before = rows.dumps(list(row)) if row else None
        audited(tx, item.now, item.actor, "set quota", "/".join(who), before, after)
    return [None] * len(items)


IS_MADE = """
SELECT 1 FROM (SELECT at, actor, action, target, after FROM audit ORDER BY seq DESC LIMIT 1000)
WHERE at = ? AND actor = ? AND action = ? AND target = ? AND after = ?
"""


def _is_made(
    tx: SqliteTransaction, at: int, actor: str, action: str, target: str, after: str
) -> bool:
    """Whether this change was made before. Idempotent: a repeated call is not another change."""
    return tx.execute(IS_MADE, (at, actor, action, target, after)).fetchone() is not None


def audit(connection: sqlite3.Connection, limit: int) -> list[AuditedChange]:
    found = connection.execute(
        "SELECT at, actor, action, target, before, after FROM audit ORDER BY seq DESC LIMIT ?",
        (limit,),
    )
    return [AuditedChange(*row) for row in found]


def credit(tx: SqliteTransaction, items: Sequence[Grant]) -> list[int | FairlaneError]:
    outcomes: list[int | FairlaneError] = []
    for item in items:
        account = account_of(item.tenant, item.user)
        source, target = (MINT, account) if item.amount >= 0 else (account, MINT)
        operation = credit_operation(account, item.operation)
        was, before = booked(tx, operation, account), balance(tx, account)
        if was not in (None, item.amount):
            outcomes.append(reused(item.operation, was))
            continue
        refusal = transfer(tx, operation, source, target, abs(item.amount), item.now, item.note)
        after = balance(tx, account)
        if was is None and refusal is None:
            who = f"{item.tenant}/{item.user}"
            audited(tx, item.now, item.actor, "add credits", who, str(before), str(after))
        outcomes.append(refusal or after)
    return outcomes


def set_pools(tx: SqliteTransaction, items: Sequence[LimitsChange]) -> list[Stamp | None]:
    return [_set_pools(tx, item) for item in items]


def _set_pools(tx: SqliteTransaction, item: LimitsChange) -> Stamp | None:
    """Limit exactly these pools from now on, and store the change that did so."""
    was = stamp(tx)
    if was.settings != item.over:
        return None
    names = {pool.name for pool in item.pools}
    news = meta(tx, "catalog") != item.catalog or item.change is not None
    for (known,) in tx.execute("SELECT name FROM pools").fetchall():
        if known not in names:
            tx.execute("DELETE FROM pools WHERE name = ?", (known,))
            news = True
    for pool in item.pools:
        news = _set_pool(tx, pool) or news
    if item.change is not None:
        _keep(tx, item.change)
    now = Stamp(was.life, was.settings + news)
    set_meta(tx, epoch=str(now), catalog=item.catalog, file=item.file)
    return now


def add_pools(tx: SqliteTransaction, items: Sequence[AddedPools]) -> list[None]:
    for item in items:
        if stamp(tx).settings == item.over:
            _forget_idle(tx, item)
            for pool in item.pools:
                _set_pool(tx, pool)
    return [None] * len(items)


def _forget_idle(tx: SqliteTransaction, item: AddedPools) -> None:
    known = {name for (name,) in tx.execute("SELECT name FROM pools")} - {*item.configured}
    if len(known) > MAX_ADDED_POOLS:
        known -= {name for (name,) in tx.execute("SELECT DISTINCT pool FROM slots")}
        tx.executemany("DELETE FROM pools WHERE name = ?", [(name,) for name in sorted(known)])


def _set_pool(tx: SqliteTransaction, pool: PoolLimit) -> bool:
    """Set one pool's limit. Returns whether anything changed. Running jobs take their slots while
    no limit is set that would refuse them."""
    row = tx.execute("SELECT size, drain FROM pools WHERE name = ?", (pool.name,)).fetchone()
    tx.execute("DELETE FROM pools WHERE name = ?", (pool.name,))
    counted = _count_running(tx, pool)
    if row is not None and row[0] == pool.size and not counted:
        tx.execute("INSERT INTO pools VALUES (?, ?, ?)", (pool.name, *row))
        return False
    tx.execute(
        "INSERT INTO pools SELECT ?, ?, coalesce(max(n), 0) FROM slots WHERE pool = ?",
        (pool.name, pool.size, pool.name),
    )
    return True


def _count_running(tx: SqliteTransaction, pool: PoolLimit) -> int:
    """Give running jobs a slot, even above the limit. The pool drains; no job is killed."""
    if not pool.services:
        return 0
    running = tx.execute(
        "SELECT id, token, lane, region FROM jobs WHERE token IS NOT NULL "
        "AND token NOT IN (SELECT token FROM slots WHERE pool = ?)",
        (pool.name,),
    ).fetchall()
    mine = [
        (job, token)
        for job, token, lane, region in running
        if service_of(lane) in pool.services and pool.region in (None, region)
    ]
    taken = {n for (n,) in tx.execute("SELECT n FROM slots WHERE pool = ?", (pool.name,))}
    free = (n for n in itertools.count(1) if n not in taken)
    tx.executemany(
        "INSERT INTO slots VALUES (?, ?, ?, ?, NULL)",
        [(pool.name, next(free), token, job) for job, token in mine],
    )
    return len(mine)


def _keep(tx: SqliteTransaction, item: SettingChange) -> None:
    row = tx.execute("SELECT value FROM settings WHERE name = ?", (item.name,)).fetchone()
    tx.execute(
        "INSERT OR REPLACE INTO settings VALUES (?, ?, ?, ?)",
        (item.name, rows.dumps(item.value), rows.dumps(item.file_value), item.now),
    )
    before = row[0] if row else None
    audited(tx, item.now, item.actor, "set", item.name, before, rows.dumps(item.value))


def audited(
    tx: SqliteTransaction,
    now: int,
    actor: str,
    action: str,
    target: str,
    before: str | None,
    after: str | None,
) -> None:
    tx.execute(
        "INSERT INTO audit (at, actor, action, target, before, after) VALUES (?, ?, ?, ?, ?, ?)",
        (now, actor, action, target, before, after),
    )


def settings(connection: sqlite3.Connection) -> StoredSettings:
    found = connection.execute("SELECT name, value, file_value FROM settings")
    catalog, file = meta(connection, "catalog"), meta(connection, "file")
    return StoredSettings(stamp(connection), catalog, file, worker_specs.changes(found))


# --- workers -------------------------------------------------------------------------------------
def put_worker(tx: SqliteTransaction, items: Sequence[tuple[Worker, int]]) -> list[None]:
    for worker, now in items:
        tx.execute(
            "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?)",
            (worker.id, worker_specs.worker_spec(worker), worker.state, now),
        )
    return [None] * len(items)


HEAR = """
UPDATE workers SET heartbeat_at = max(heartbeat_at, :now), state = CASE
    WHEN 'dead' IN (state, :state) THEN 'dead'
    WHEN 'draining' IN (state, :state) THEN 'draining' ELSE 'active' END
WHERE id = :id RETURNING id, spec, state, heartbeat_at
"""


def record_heartbeat(
    tx: SqliteTransaction, items: Sequence[tuple[str, WorkerState, int]]
) -> list[Worker | None]:
    """Heartbeats, as (worker, state, now). A worker's state only moves forward."""
    return [_heard(tx, *item) for item in items]


def _heard(tx: SqliteTransaction, worker: str, state: WorkerState, now: int) -> Worker | None:
    found = tx.execute(HEAR, {"id": worker, "state": state, "now": now}).fetchall()
    return worker_specs.workers(found)[0][0] if found else None


def forget_workers(tx: SqliteTransaction, items: Sequence[int]) -> list[int]:
    """Delete workers without a heartbeat since then."""
    gone = "DELETE FROM workers WHERE heartbeat_at < ?"
    return [tx.execute(gone, (before,)).rowcount for before in items]


def worker(connection: sqlite3.Connection, name: str) -> Worker | None:
    columns = "SELECT id, spec, state, heartbeat_at FROM workers WHERE id = ?"
    found = worker_specs.workers(connection.execute(columns, (name,)))
    return found[0][0] if found else None


def workers(connection: sqlite3.Connection) -> list[tuple[Worker, int]]:
    return worker_specs.workers(
        connection.execute("SELECT id, spec, state, heartbeat_at FROM workers ORDER BY id")
    )
