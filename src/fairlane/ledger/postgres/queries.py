"""Queries of the PostgreSQL ledger, on separate connections: reads do not wait for writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairlane.ledger import row_groups, rows
from fairlane.ledger.job_columns import read_job
from fairlane.ledger.messages import Counts, Filter, LiveSlot, Owner
from fairlane.ledger.postgres.events import JOB
from fairlane.ledger.postgres.job_lists import IS_LEASED, IS_LIVE, OLDEST_LIVE
from fairlane.ledger.postgres.read_connection import Connection, brief, snapshot
from fairlane.model.attempt import Attempt
from fairlane.model.event import Event
from fairlane.model.job import Job, Json
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Start
from fairlane.model.state import ENDED, State
from fairlane.model.state import LIVE as LIVE_STATES


async def jobs(connection: Connection, ids: Sequence[str]) -> dict[str, Job]:
    found = await connection.fetch(f"SELECT {JOB} FROM jobs WHERE id = ANY($1::text[])", ids)
    return {row[0]: read_job(tuple(row)) for row in found}


TAKE_TIME = "SET LOCAL idle_in_transaction_session_timeout = '60s'"
"""A longer idle timeout: a reader that pages through a snapshot pauses between pages, or waits for
the index. It holds no lock."""

LIVE = f"SELECT {JOB} FROM jobs WHERE {IS_LIVE} AND cells = 0"
DECLARE_LIVE = f"DECLARE live NO SCROLL CURSOR FOR {LIVE}"


EXPIRED = f"""
SELECT {JOB} FROM jobs
WHERE id = ANY(ARRAY(SELECT unnest(rolls.jobs) FROM rolls WHERE kind = 'leased' AND at <= $1))
    AND token IS NOT NULL AND lease_until <= $1 AND lease <= $2
ORDER BY lease_until LIMIT $3
"""


async def is_due(connection: Connection, now: int) -> bool:
    """Whether a lease may have ended by now."""
    due = "SELECT EXISTS (SELECT 1 FROM rolls WHERE kind = 'leased' AND at <= $1)"
    return bool(await connection.fetchval(due, now))


HOLDING = """
SELECT jobs.token FROM unnest($1::text[], $2::text[]) v (job, token)
JOIN jobs ON jobs.id = v.job AND jobs.token = v.token
"""


async def holding(connection: Connection, leases: Sequence[tuple[str, str]]) -> frozenset[str]:
    jobs, tokens = [job for job, _ in leases], [token for _, token in leases]
    return frozenset(row[0] for row in await connection.fetch(HOLDING, jobs, tokens))


async def expired(connection: Connection, now: int, reached: int, limit: int) -> list[Job]:
    found = await connection.fetch(
        EXPIRED,
        now,
        reached,
        limit,
    )
    return [read_job(tuple(row)) for row in found]


HELD = f"""
SELECT {JOB} FROM jobs
WHERE {IS_LEASED} AND ($1::text IS NULL OR split_part(worker, '#', 1) = $1)
"""


async def held(connection: Connection, worker: str | None) -> list[Job]:
    return [read_job(tuple(row)) for row in await connection.fetch(HELD, worker)]


RUNNING = f"SELECT lane, region, count(*) FROM jobs WHERE {IS_LEASED} GROUP BY lane, region"


async def running_in(connection: Connection) -> Counter[tuple[str, str | None]]:
    return row_groups.running_in(await connection.fetch(RUNNING))


RUNNING_JOBS = f"""
SELECT {JOB} FROM jobs
WHERE {IS_LEASED} AND ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR username = $2)
    AND ($3::text IS NULL OR key = $3 AND username IS NULL)
    AND CASE WHEN $4::text IS NULL THEN parent IS NULL ELSE split_part(lane, '|', 1) = $4 END
ORDER BY started_at, id LIMIT $5
"""


async def running_jobs(
    connection: Connection, wanted: Filter, service: str | None, limit: int
) -> list[Job]:
    args = (wanted.tenant, wanted.user, wanted.key, service, limit)
    return [read_job(tuple(row)) for row in await connection.fetch(RUNNING_JOBS, *args)]


async def slots(connection: Connection, pool: str | None) -> list[LiveSlot]:
    columns = "SELECT pool, n, until, token, job FROM slots"
    if pool is None:
        found = await connection.fetch(columns)
    else:
        found = await connection.fetch(f"{columns} WHERE pool = $1", pool)
    return [LiveSlot(Slot(name, n, until or 0), token, job) for name, n, until, token, job in found]


HAS_ENDED = (
    "id = ANY(ARRAY(SELECT unnest(rolls.jobs) FROM rolls "
    f"WHERE kind IN ({', '.join(repr(str(state)) for state in sorted(ENDED))}) AND at > $1))"
)
STARTED = "SELECT lane, tier, tenant, username, key, started_at, id FROM jobs WHERE cells = 0"
STARTS = (
    f"{STARTED} AND {IS_LIVE} AND started_at > $1 "
    f"UNION ALL {STARTED} AND {HAS_ENDED} AND finished_at > $1 AND started_at IS NOT NULL"
)


async def starts(connection: Connection, since: int, ranks: dict[str, int]) -> list[Start]:
    """Starts of jobs that live or have finished since then. An older start no longer affects
    fairness."""
    return row_groups.starts(await connection.fetch(STARTS, since), ranks)


BAD = frozenset({State.FAILED, State.DEAD})
"""Only these states have an error, and jobs in them are found by it."""

IN_ORDER = "SET LOCAL enable_sort = off"
"""Read a page by an index in its order and stop at its end. Otherwise the
planner may read and sort all jobs, probably while it has no statistics of the table."""

TAGGED = "EXISTS (SELECT 1 FROM json_array_elements(tags::json) WHERE value::text = {})"


def _in_states(states: Sequence[State]) -> list[str]:
    """Conditions for jobs in these states, with what narrows the search for them."""
    found = [f"state IN ({', '.join(repr(str(State(each))) for each in states)})"]
    if BAD.issuperset(states):
        found.append("error_code IS NOT NULL")
    if LIVE_STATES.issuperset(states):
        found += [f"id >= ({OLDEST_LIVE})", "finished_at IS NULL"]
    return found


async def list_jobs(
    connection: Connection, wanted: Filter, after: str | None, limit: int
) -> list[Job]:
    """Jobs, newest first. Ids sort by the time of acceptance, also across processes."""
    where: list[str] = []
    args: list[object] = []

    def need(condition: str, value: object) -> None:
        args.append(value)
        where.append(condition.format(f"${len(args)}"))

    if after is not None:
        need("id < {}", after)
    for column, value in (
        ("tenant", wanted.tenant),
        ("key", wanted.key),
        ("username", wanted.user),
        ("name", wanted.name),
        ("parent", wanted.parent),
    ):
        if value is not None:
            need(f"{column} = {{}}", value)
    if wanted.parent is None:
        where.append("parent IS NULL")
    if wanted.key is not None and wanted.user is None:
        where.append("username IS NULL")  # such a key names no user; finds the jobs by index
    if wanted.states:
        where += _in_states(wanted.states)
    if wanted.tag is not None:
        need(TAGGED, rows.dumps(wanted.tag))
    for ending, ended in row_groups.where_it_is(wanted):
        need(ending, ended)
    condition = " AND ".join(where)
    args.append(limit)
    query = f"SELECT {JOB} FROM jobs WHERE {condition} ORDER BY id DESC LIMIT ${len(args)}"
    async with brief(connection):
        await connection.execute(IN_ORDER)
        found = await connection.fetch(query, *args)
    return [read_job(tuple(row)) for row in found]


NEXT_OF_USER, NEXT_OF_KEY = (
    f"""
SELECT {JOB} FROM jobs WHERE id = ANY(ARRAY(
    SELECT id FROM jobs WHERE tenant = $1 AND {mine} AND id >= ({OLDEST_LIVE})
    AND finished_at IS NULL AND cells = 0 ORDER BY id LIMIT 1000))
ORDER BY token IS NULL, CASE WHEN token IS NULL THEN ready_at ELSE started_at END, id LIMIT 1
"""
    for mine in ("username = $2", "username IS NULL AND key = $2")
)


async def next_to_end(connection: Connection, owner: Owner) -> Job | None:
    if owner.user is not None:
        row = await connection.fetchrow(NEXT_OF_USER, owner.tenant, owner.user)
    else:
        row = await connection.fetchrow(NEXT_OF_KEY, owner.tenant, owner.key)
    return read_job(tuple(row)) if row is not None else None


PAYLOAD = row_groups.PAYLOAD.format("$1")
STEPS = """
SELECT step, service, output, metrics, attempts FROM steps WHERE job = $1 ORDER BY step
"""


async def payload(connection: Connection, job: str) -> tuple[Json, dict[str, Json]]:
    async with snapshot(connection):
        row = await connection.fetchrow(PAYLOAD, job)
        finished = await connection.fetch(STEPS, job)
    if row is None:
        return None, {}
    return row_groups.payload(row, [tuple(each) for each in finished])


ATTEMPTS = """
SELECT job, fence, step, number, worker, region, started_at, ended_at, outcome, fault, message,
    token
FROM attempts WHERE job = $1
UNION ALL
SELECT id, fence, step - 1, attempt, worker, region, started_at, finished_at, 'completed', NULL,
    NULL, ended_by
FROM jobs WHERE id = $1 AND ended_by IS NOT NULL
ORDER BY fence
"""


async def attempts(connection: Connection, job: str) -> list[Attempt]:
    return [rows.attempt(tuple(row)) for row in await connection.fetch(ATTEMPTS, job)]


async def events(connection: Connection, job_id: str, after: int) -> list[Event]:
    """Row and events are read in one snapshot, so the implied events follow the written ones
    without a gap."""
    async with snapshot(connection):
        found = (await jobs(connection, [job_id])).get(job_id)
        written = await connection.fetch(
            "SELECT first, body FROM events WHERE job = $1 ORDER BY first", job_id
        )
    return [] if found is None else row_groups.events(found, written, after)


async def fate(connection: Connection, job: str, owner: str | None) -> str | None:
    found = await connection.fetch("SELECT scope, status FROM idempotency WHERE job = $1", job)
    return row_groups.fate(found, owner)


async def tier_of(connection: Connection, tenant: str, user: str) -> str | None:
    found: str | None = await connection.fetchval(
        "SELECT tier FROM users WHERE tenant = $1 AND id = $2", tenant, user
    )
    return found


async def count(connection: Connection, state: State, tenant: str | None) -> int:
    where = f"state = '{state}' AND parent IS NULL AND ($1::text IS NULL OR tenant = $1)"
    if state in LIVE_STATES:
        where += f" AND {IS_LIVE}"
    if state in BAD:
        where += " AND error_code IS NOT NULL"
    async with brief(connection):
        return int(await connection.fetchval(f"SELECT count(*) FROM jobs WHERE {where}", tenant))


async def cell_counts(connection: Connection, parent: str) -> dict[State, int]:
    found = await connection.fetch(
        "SELECT state, count(*) FROM jobs WHERE parent = $1 GROUP BY state", parent
    )
    return {State(state): number for state, number in found}


async def stopping(connection: Connection) -> list[str]:
    found = await connection.fetch(
        "SELECT id FROM jobs WHERE on_cell_failure = 'stopping' AND id > $1 ORDER BY id", ""
    )
    return [job for (job,) in found]


async def load(connection: Connection) -> tuple[int, int]:
    ((queued, running),) = await connection.fetch(
        "SELECT sum(queued)::bigint, sum(running)::bigint FROM line"
    )
    return queued, running


async def finished_since(connection: Connection, since: int) -> dict[State, int]:
    found = await connection.fetch(
        "SELECT kind, sum(number)::bigint FROM rolls WHERE kind = ANY($2) AND at > $1 "
        "GROUP BY kind",
        since,
        list(ENDED),
    )
    return {State(state): number for state, number in found}


CHECKS = {
    "over_limit": "SELECT count(*) FROM slots JOIN pools ON pools.name = slots.pool "
    "WHERE slots.n > greatest(pools.size, pools.drain)",
    "orphan_slots": "SELECT count(*) FROM slots LEFT JOIN jobs ON jobs.token = slots.token "
    "AND jobs.id = slots.job WHERE jobs.id IS NULL AND slots.until IS NULL",
    "unbalanced_operations": "SELECT count(*) FROM (SELECT 1 FROM entries GROUP BY operation "
    "HAVING sum(amount) <> 0) unbalanced",
    "wrong_balances": "SELECT count(*) FROM accounts WHERE balance <> "
    "(SELECT coalesce(sum(amount), 0) FROM entries WHERE account = accounts.name)",
    "event_gaps": "SELECT count(*) FROM jobs WHERE written <> (SELECT coalesce(sum("
    "json_array_length(body::json)), 0) FROM events WHERE job = jobs.id)",
    "stuck_parents": "SELECT count(*) FROM jobs p WHERE p.cells > 0 AND p.cells_left <> "
    "(SELECT count(*) FROM jobs c WHERE c.parent = p.id AND c.finished_at IS NULL)",
    "unlisted": "SELECT count(*) FROM ("
    "SELECT id, CASE WHEN finished_at IS NULL THEN 'live' ELSE state END FROM jobs "
    "UNION ALL SELECT id, 'leased' FROM jobs WHERE token IS NOT NULL "
    "EXCEPT SELECT unnest(jobs), kind FROM rolls) missing",
}


async def has_hourly_quotas(connection: Connection) -> bool:
    return bool(
        await connection.fetchval("SELECT EXISTS (SELECT 1 FROM quotas WHERE per_hour > 0)")
    )


async def check(connection: Connection) -> Counts:
    """Counts of one snapshot: rows of several tables agree only within one."""
    async with snapshot(connection):
        return Counts(**{name: await connection.fetchval(query) for name, query in CHECKS.items()})
