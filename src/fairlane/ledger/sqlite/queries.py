"""Queries of the SQLite ledger, on a separate connection: reads do not wait for writes."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from fairlane.ledger import row_groups, rows
from fairlane.ledger.job_columns import JOB, read_job
from fairlane.ledger.messages import Counts, Filter, LiveSlot, Owner
from fairlane.ledger.sqlite.read_connection import brief
from fairlane.ledger.sqlite.statements import chunks, marks
from fairlane.model.attempt import Attempt
from fairlane.model.event import Event
from fairlane.model.job import Job, Json
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Start
from fairlane.model.state import LIVE as LIVE_STATES
from fairlane.model.state import State


def jobs(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Job]:
    return {
        row[0]: read_job(row)
        for part in chunks(ids)
        for row in connection.execute(f"SELECT {JOB} FROM jobs WHERE id IN ({marks(part)})", part)
    }


LIVE = f"SELECT {JOB} FROM jobs WHERE finished_at IS NULL AND cells = 0"


def holding(connection: sqlite3.Connection, leases: Sequence[tuple[str, str]]) -> frozenset[str]:
    wanted = set(leases)
    return frozenset(
        token
        for part in chunks([job for job, _ in leases])
        for job, token in connection.execute(
            f"SELECT id, token FROM jobs WHERE id IN ({marks(part)})", part
        )
        if (job, token) in wanted
    )


def expired(connection: sqlite3.Connection, now: int, reached: int, limit: int) -> list[Job]:
    found = connection.execute(
        f"SELECT {JOB} FROM jobs WHERE token IS NOT NULL AND lease_until <= ? "
        "AND lease <= ? ORDER BY lease_until LIMIT ?",
        (now, reached, limit),
    )
    return [read_job(row) for row in found]


def held(connection: sqlite3.Connection, worker: str | None) -> list[Job]:
    found = connection.execute(
        f"SELECT {JOB} FROM jobs WHERE token IS NOT NULL "
        "AND (?1 IS NULL OR worker = ?1 OR substr(worker, 1, length(?1) + 1) = ?1 || '#')",
        (worker,),
    )
    return [read_job(row) for row in found]


RUNNING = """
SELECT lane, region, count(*) FROM jobs WHERE token IS NOT NULL GROUP BY lane, region
"""


def running_in(connection: sqlite3.Connection) -> Counter[tuple[str, str | None]]:
    with brief(connection):
        return row_groups.running_in(connection.execute(RUNNING))


RUNNING_JOBS = f"""
SELECT {JOB} FROM jobs
WHERE token IS NOT NULL AND (?1 IS NULL OR tenant = ?1) AND (?2 IS NULL OR user = ?2)
    AND (?3 IS NULL OR key = ?3 AND user IS NULL)
    AND CASE WHEN ?4 IS NULL THEN parent IS NULL ELSE substr(lane, 1, instr(lane, '|') - 1) = ?4 END
ORDER BY started_at, id LIMIT ?5
"""


def running_jobs(
    connection: sqlite3.Connection, wanted: Filter, service: str | None, limit: int
) -> list[Job]:
    args = (wanted.tenant, wanted.user, wanted.key, service, limit)
    return [read_job(row) for row in connection.execute(RUNNING_JOBS, args)]


def slots(connection: sqlite3.Connection, pool: str | None) -> list[LiveSlot]:
    where, args = ("WHERE pool = ?", (pool,)) if pool is not None else ("", ())
    return [
        LiveSlot(Slot(name, n, until or 0), token, job)
        for name, n, until, token, job in connection.execute(
            f"SELECT pool, n, until, token, job FROM slots {where}", args
        )
    ]


def starts(connection: sqlite3.Connection, since: int, ranks: dict[str, int]) -> list[Start]:
    """Starts of jobs that live or have finished since then. An older start no longer affects
    fairness."""
    columns = "SELECT lane, tier, tenant, user, key, started_at, id FROM jobs WHERE cells = 0"
    living = f"{columns} AND finished_at IS NULL AND started_at > ?"
    finished = f"{columns} AND finished_at > ? AND started_at IS NOT NULL"
    found = (connection.execute(query, (since,)) for query in (living, finished))
    return row_groups.starts(chain.from_iterable(found), ranks)


BELOW = """rowid < coalesce(
    (SELECT rowid FROM jobs WHERE id = ?),
    (SELECT rowid + 1 FROM jobs WHERE id < ? ORDER BY id DESC LIMIT 1),
    0)"""
"""The rows before the cursor. Rowids are in the order of acceptance. A cursor whose job is deleted
points to the next older job."""


def list_jobs(
    connection: sqlite3.Connection, wanted: Filter, after: str | None, limit: int
) -> list[Job]:
    where = [BELOW] if after is not None else []
    args: list[object] = [after, after] if after is not None else []
    for column in ("tenant", "key", "user", "name", "parent"):
        value = getattr(wanted, column)
        if value is not None:
            where.append(f"{column} = ?")
            args.append(value)
    if wanted.parent is None:
        where.append("parent IS NULL")
    if wanted.states:
        where.append(f"state IN ({', '.join(repr(str(State(each))) for each in wanted.states)})")
    if wanted.user is None and wanted.key is not None:
        where.append("user IS NULL")  # such a key names no user; finds the jobs by index
    elif wanted.user is None and wanted.states and LIVE_STATES.issuperset(wanted.states):
        where.append("finished_at IS NULL")
    if wanted.tag is not None:
        where.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)")
        args.append(wanted.tag)
    for condition, value in row_groups.where_it_is(wanted):
        where.append(condition.format("?"))
        args.append(value)
    condition = f"WHERE {' AND '.join(where)}" if where else ""
    query = f"SELECT {JOB} FROM jobs {condition} ORDER BY rowid DESC LIMIT ?"
    with brief(connection):
        found = connection.execute(query, (*args, limit)).fetchall()
    return [read_job(row) for row in found]


NEXT_TO_END = f"""
SELECT {JOB} FROM jobs WHERE rowid IN (
    SELECT rowid FROM jobs WHERE tenant = ? AND user IS ? AND (user IS NOT NULL OR key = ?)
    AND rowid >= (SELECT rowid FROM jobs WHERE finished_at IS NULL ORDER BY rowid LIMIT 1)
    AND finished_at IS NULL AND cells = 0 ORDER BY rowid LIMIT 1000)
ORDER BY token IS NULL, CASE WHEN token IS NULL THEN ready_at ELSE started_at END, id LIMIT 1
"""


def next_to_end(connection: sqlite3.Connection, owner: Owner) -> Job | None:
    with brief(connection):
        row = connection.execute(NEXT_TO_END, owner).fetchone()
    return read_job(row) if row is not None else None


def payload(connection: sqlite3.Connection, job: str) -> tuple[Json, dict[str, Json]]:
    row = connection.execute(row_groups.PAYLOAD.format("?"), (job,)).fetchone()
    if row is None:
        return None, {}
    finished = connection.execute(
        "SELECT step, service, output, metrics, attempts FROM steps WHERE job = ? ORDER BY step",
        (job,),
    )
    return row_groups.payload(row, finished)


ATTEMPTS = """
SELECT job, fence, step, number, worker, region, started_at, ended_at, outcome, fault, message,
    token
FROM attempts WHERE job = ?1
UNION ALL
SELECT id, fence, step - 1, attempt, worker, region, started_at, finished_at, 'completed', NULL,
    NULL, ended_by
FROM jobs WHERE id = ?1 AND ended_by IS NOT NULL
ORDER BY fence
"""


def attempts(connection: sqlite3.Connection, job: str) -> list[Attempt]:
    return [rows.attempt(row) for row in connection.execute(ATTEMPTS, (job,))]


def events(connection: sqlite3.Connection, job_id: str, after: int) -> list[Event]:
    """Row and events are read in one snapshot, so the implied events follow the written ones
    without a gap."""
    connection.execute("BEGIN")
    try:
        found = jobs(connection, [job_id]).get(job_id)
        written = connection.execute(
            "SELECT first, body FROM events WHERE job = ? ORDER BY first", (job_id,)
        ).fetchall()
    finally:
        connection.execute("COMMIT")
    return [] if found is None else row_groups.events(found, written, after)


def fate(connection: sqlite3.Connection, job: str, owner: str | None) -> str | None:
    found = connection.execute("SELECT scope, status FROM idempotency WHERE job = ?", (job,))
    return row_groups.fate(found, owner)


def tier_of(connection: sqlite3.Connection, tenant: str, user: str) -> str | None:
    row = connection.execute(
        "SELECT tier FROM users WHERE tenant = ? AND id = ?", (tenant, user)
    ).fetchone()
    return None if row is None else row[0]


def count(connection: sqlite3.Connection, state: State, tenant: str | None) -> int:
    where = f"state = '{state}' AND parent IS NULL AND (?1 IS NULL OR tenant = ?1)"
    if state in LIVE_STATES:
        where += " AND finished_at IS NULL"
    with brief(connection):
        (found,) = connection.execute(
            f"SELECT count(*) FROM jobs WHERE {where}", (tenant,)
        ).fetchone()
    return int(found)


def cell_counts(connection: sqlite3.Connection, parent: str) -> dict[State, int]:
    found = connection.execute(
        "SELECT state, count(*) FROM jobs WHERE parent = ? GROUP BY state", (parent,)
    )
    return {State(state): number for state, number in found}


def stopping(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT id FROM jobs WHERE on_cell_failure = 'stopping'")
    return [job for (job,) in found]


def running(connection: sqlite3.Connection) -> int:
    query = "SELECT count(*) FROM jobs WHERE token IS NOT NULL"
    with brief(connection):
        (found,) = connection.execute(query).fetchone()
    return int(found)


def last_seen(connection: sqlite3.Connection) -> int:
    """The latest time in the rows that is cheap to find. Events after it, if any, are safe under an
    earlier clock."""
    (latest,) = connection.execute(
        "SELECT max(coalesce((SELECT created_at FROM jobs ORDER BY id DESC LIMIT 1), 0), "
        "coalesce((SELECT max(finished_at) FROM jobs), 0), "
        "coalesce((SELECT max(lease_until - lease) FROM jobs WHERE token IS NOT NULL), 0), "
        "coalesce((SELECT max(heartbeat_at) FROM workers), 0))"
    ).fetchone()
    return int(latest)


def finished_since(connection: sqlite3.Connection, since: int) -> dict[State, int]:
    query = "SELECT state, count(*) FROM jobs WHERE finished_at > ? GROUP BY state"
    with brief(connection):
        return {State(state): number for state, number in connection.execute(query, (since,))}


CHECKS = {
    "over_limit": "SELECT count(*) FROM slots JOIN pools ON pools.name = slots.pool "
    "WHERE slots.n > max(pools.size, pools.drain)",
    "orphan_slots": "SELECT count(*) FROM slots LEFT JOIN jobs ON jobs.token = slots.token "
    "AND jobs.id = slots.job WHERE jobs.id IS NULL AND slots.until IS NULL",
    "unbalanced_operations": "SELECT count(*) FROM (SELECT 1 FROM entries GROUP BY operation "
    "HAVING sum(amount) <> 0)",
    "wrong_balances": "SELECT count(*) FROM accounts WHERE balance <> "
    "(SELECT coalesce(sum(amount), 0) FROM entries WHERE account = accounts.name)",
    "event_gaps": "SELECT count(*) FROM jobs WHERE written <> (SELECT coalesce(sum("
    "json_array_length(body)), 0) FROM events WHERE job = jobs.id)",
    "stuck_parents": "SELECT count(*) FROM jobs p WHERE p.cells > 0 AND p.cells_left <> "
    "(SELECT count(*) FROM jobs c WHERE c.parent = p.id AND c.finished_at IS NULL)",
}


def has_hourly_quotas(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT EXISTS (SELECT 1 FROM quotas WHERE per_hour > 0)")
    return bool(found.fetchone()[0])


def check(connection: sqlite3.Connection) -> Counts:
    return Counts(
        **{name: connection.execute(query).fetchone()[0] for name, query in CHECKS.items()},
        unlisted=0,  # SQLite has indexes instead of job lists
    )
