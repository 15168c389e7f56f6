"""Leases and waiting jobs in PostgreSQL: renew, expire, revoke, promote, give up."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ids import token as new_token
from fairlane.ledger import rows
from fairlane.ledger.job_columns import read_job
from fairlane.ledger.messages import Renewal
from fairlane.ledger.postgres.credits import refund
from fairlane.ledger.postgres.events import JOB, find_all, write_all
from fairlane.ledger.postgres.fanout import cells_ended
from fairlane.ledger.postgres.job_lists import IS_LEASED, add_to_list
from fairlane.ledger.postgres.locks import hold_jobs
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.requests import (
    ProgressReport,
    Promotion,
    RenewRequest,
    StartMove,
    UnconfirmedProposal,
)
from fairlane.ledger.row_groups import ended_cells
from fairlane.model.event import EventType, Fact
from fairlane.model.job import Band, Job
from fairlane.model.service import is_rate_pool
from fairlane.model.state import Code, Move, State, moved

RENEW = Statement("""
WITH held AS (
    SELECT jobs.id FROM jobs JOIN unnest(:jobs::text[], :tokens::text[]) v (id, token)
        ON jobs.id = v.id AND jobs.token = v.token
    WHERE jobs.lease_until > :now
    ORDER BY jobs.id FOR UPDATE OF jobs
)
UPDATE jobs SET lease_until = greatest(lease_until, least(:until, deadline))
FROM held WHERE jobs.id = held.id
RETURNING jobs.id, jobs.token
""")


async def renew(tx: PostgresTransaction, items: Sequence[RenewRequest]) -> list[Renewal]:
    if len(items) > 1:
        await hold_jobs(tx, [job for item in items for job, _ in item.tokens])
    return [await _renew(tx, item) for item in items]


async def _renew(tx: PostgresTransaction, item: RenewRequest) -> Renewal:
    if not item.tokens:
        return Renewal([], [])
    jobs, tokens = [job for job, _ in item.tokens], [token for _, token in item.tokens]
    renewal = RENEW(jobs=jobs, tokens=tokens, until=item.until, now=item.now)
    held = {tuple(row) for row in await tx.fetch(*renewal)}
    gone = [job for job, token in item.tokens if (job, token) not in held]
    states = await _states(tx, gone)
    lost: list[str] = []
    cancelled: list[str] = []
    for job in gone:
        (cancelled if states.get(job) is State.CANCELLED else lost).append(job)
    return Renewal(lost, cancelled)


async def _states(tx: PostgresTransaction, jobs: Sequence[str]) -> dict[str, State]:
    if not jobs:
        return {}
    found = await tx.fetch("SELECT id, state FROM jobs WHERE id = ANY($1::text[])", jobs)
    return {job: State(state) for job, state in found}


PROLONG = f"""
WITH held AS (SELECT id FROM jobs WHERE {IS_LEASED} ORDER BY id FOR UPDATE)
UPDATE jobs SET lease_until = CASE
    WHEN deadline > $1 THEN greatest(lease_until, least($1 + lease, deadline))
    WHEN lease_until <= deadline THEN $1 + lease
    ELSE lease_until END
FROM held WHERE jobs.id = held.id
"""


async def prolong(tx: PostgresTransaction, items: Sequence[int]) -> list[None]:
    """Extend every lease from now on. A lease past its deadline is extended only once: its end is
    then after its deadline."""
    for now in items:
        await tx.execute(PROLONG, now)
    return [None] * len(items)


PROGRESS = """
WITH held AS (
    SELECT jobs.id, v.progress FROM jobs
    JOIN unnest($1::text[], $2::text[], $3::text[]) v (id, token, progress)
        ON jobs.id = v.id AND jobs.token = v.token
    ORDER BY jobs.id FOR UPDATE OF jobs
)
UPDATE jobs SET progress = held.progress FROM held WHERE jobs.id = held.id
RETURNING jobs.id, jobs.token
"""


async def progress(tx: PostgresTransaction, items: Sequence[ProgressReport]) -> list[State | None]:
    """None if the token holds, otherwise the job's state; a missing job counts as cancelled."""
    last = {(item.job, item.token): rows.dumps(list(item.progress)) for item in items}
    jobs, tokens = [job for job, _ in last], [token for _, token in last]
    held = {tuple(row) for row in await tx.fetch(PROGRESS, jobs, tokens, list(last.values()))}
    states = await _states(tx, [job for job, token in last if (job, token) not in held])
    return [
        None if (item.job, item.token) in held else states.get(item.job, State.CANCELLED)
        for item in items
    ]


MOVE_START = """
WITH held AS (
    SELECT jobs.id, max(v.at) AS at FROM jobs
    JOIN unnest($1::text[], $2::text[], $3::bigint[]) v (id, token, at)
        ON jobs.id = v.id AND jobs.token = v.token
    WHERE jobs.started_at < v.at GROUP BY jobs.id
)
UPDATE jobs SET deadline = deadline + held.at - started_at, started_at = held.at
FROM held WHERE jobs.id = held.id
"""


async def move_start(tx: PostgresTransaction, items: Sequence[StartMove]) -> list[None]:
    await hold_jobs(tx, sorted({item.job for item in items}))
    jobs, tokens = [item.job for item in items], [item.token for item in items]
    await tx.execute(MOVE_START, jobs, tokens, [item.at for item in items])
    return [None] * len(items)


FREE = """
WITH due AS (
    SELECT pool, n FROM slots WHERE until <= $1 ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM slots USING due WHERE slots.pool = due.pool AND slots.n = due.n
RETURNING slots.pool, slots.token
"""


DRAINED = """
UPDATE pools SET drain = 0 WHERE name IN (
    SELECT name FROM pools WHERE drain > size
        AND NOT EXISTS (SELECT 1 FROM slots WHERE slots.pool = pools.name AND slots.n > pools.size)
    FOR UPDATE SKIP LOCKED)
"""
"""Only a change of limits leaves slots above one, and that rewrites the pool's row."""


async def free_slots(tx: PostgresTransaction, items: Sequence[tuple[int, int]]) -> list[list[str]]:
    """Free slots whose time is over, as (now, limit). Returns the tokens that were kept beyond
    their lease; a rate's slot says nothing about its lease. Pools that have drained become normal
    pools."""
    await tx.execute(DRAINED)
    return [await _free_slots(tx, now, limit) for now, limit in items]


async def _free_slots(tx: PostgresTransaction, now: int, limit: int) -> list[str]:
    found = await tx.fetch(FREE, now, limit)
    left_behind = await tx.fetch(FREE_LEFT_BEHIND, new_token(), MAX_SLOTS_SCANNED)
    return [token for pool, token in (*found, *left_behind) if not is_rate_pool(pool)]


MAX_SLOTS_SCANNED = 100
"""Slots inspected before and after a random position: a few at a time, eventually all."""

FREE_LEFT_BEHIND = """
WITH seen AS MATERIALIZED (
    (SELECT pool, n, token, job, until FROM slots WHERE token > $1 ORDER BY token LIMIT $2)
    UNION ALL
    (SELECT pool, n, token, job, until FROM slots WHERE token < $1 ORDER BY token DESC LIMIT $2)
), dead AS MATERIALIZED (
    SELECT pool, n, token FROM seen WHERE until IS NULL
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = seen.job AND jobs.token = seen.token)
), held AS (
    SELECT slots.pool, slots.n FROM slots JOIN dead ON slots.pool = dead.pool AND slots.n = dead.n
    WHERE slots.token = dead.token AND slots.until IS NULL FOR UPDATE OF slots SKIP LOCKED
)
DELETE FROM slots USING held WHERE slots.pool = held.pool AND slots.n = held.n
RETURNING slots.pool, slots.token
"""
"""Orphaned slots: their leases belong to no job. There should be none; without this check one would
stay taken for ever."""


async def revoke(tx: PostgresTransaction, items: Sequence[UnconfirmedProposal]) -> list[bool]:
    """True if the job runs under that token. Otherwise its rev is raised, so that a late confirm
    fails."""
    jobs = await find_all(tx, [item.job for item in items])
    moved_on: set[str] = set()
    runs = []
    for item in items:
        job = jobs.get(item.job)
        held = job is not None and job.token == item.token
        runs.append(held)
        if job is not None and not held:
            if job.state is State.QUEUED and job.rev == item.rev:
                moved_on.add(job.id)
            tx.touched.append(job.id)
    if moved_on:
        await tx.execute(
            "UPDATE jobs SET rev = rev + 1 WHERE id = ANY($1::text[])", sorted(moved_on)
        )
    return runs


PROMOTE = """
UPDATE jobs SET level = v.level, promoted_at = v.at
FROM unnest($1::text[], $2::text[], $3::bigint[]) v (id, level, at) WHERE jobs.id = v.id
"""


async def promote(tx: PostgresTransaction, items: Sequence[Promotion]) -> list[str | None]:
    """The level each job had before, or None if there was nothing to announce."""
    jobs = await find_all(tx, [item.job for item in items])
    reached: dict[str, str] = {}
    facts: dict[str, list[Fact]] = {}
    outcomes: list[str | None] = []
    for item in items:
        job = jobs.get(item.job)
        old = reached.get(item.job) or (job.level if job else "")
        if job is None or moved(job.state, Move.PROMOTE) is None or not item.is_news(old):
            outcomes.append(None)
            continue
        fact = Fact(EventType.JOB_PROMOTED, item.now, {"old": old, "new": item.level})
        facts.setdefault(item.job, []).append(fact)
        reached[item.job] = item.level
        outcomes.append(old)
    if reached:
        times = await write_all(tx, [(jobs[job], told) for job, told in facts.items()])
        await tx.execute(PROMOTE, list(times), [reached[job] for job in times], times.values())
    return outcomes


WAITED_TOO_LONG = f"""
SELECT {JOB} FROM jobs WHERE give_up_at <= $1 AND state = 'queued'
ORDER BY give_up_at LIMIT $2 FOR UPDATE SKIP LOCKED
"""
GIVE_UP = Statement(f"""
UPDATE jobs SET state = 'failed', rev = rev + 1, finished_at = v.at, give_up_at = NULL,
    waited = v.waited, error_code = :code, error_message = v.message
FROM {table("id text, waited bigint, message text, at bigint")}
WHERE jobs.id = v.id
""")


async def give_up(tx: PostgresTransaction, items: Sequence[tuple[int, int]]) -> list[list[Job]]:
    """Fail queued jobs past their longest wait, as (now, limit). They can be resumed."""
    given_up = [await _give_up(tx, now, limit) for now, limit in items]
    ended = [(job, now) for (now, _), jobs in zip(items, given_up, strict=True) for job in jobs]
    for cells in ended_cells((job.parent, job.id, State.FAILED, now) for job, now in ended):
        await cells_ended(tx, cells)
    for job, now in ended:
        if job.band is Band.SKIP and job.delivered == 0:
            await refund(tx, job.id, now)
    return given_up


async def _give_up(tx: PostgresTransaction, now: int, limit: int) -> list[Job]:
    jobs = [read_job(tuple(row)) for row in await tx.fetch(WAITED_TOO_LONG, now, limit)]
    if not jobs:
        return []
    code = Code.RESOURCE_EXHAUSTED
    fact = Fact(EventType.JOB_FAILED, now, {"code": code})
    times = await write_all(tx, [(job, [fact]) for job in jobs])
    ids = [job.id for job in jobs]
    waited = [job.waited_until(now) for job in jobs]
    messages = [f"no capacity at {job.current.service} in time" for job in jobs]
    await tx.execute(
        *GIVE_UP(id=ids, waited=waited, message=messages, at=times.values(), code=code)
    )
    await add_to_list(tx, State.FAILED, max(times.values()), ids)
    tx.touched += ids
    tx.line -= len(jobs)
    return jobs


FORGIVE = """
WITH queued AS (
    SELECT jobs.id FROM jobs
    JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) v (id, step, seen)
        ON jobs.id = v.id AND jobs.step = v.step AND jobs.attempt = v.seen
    WHERE jobs.state = 'queued'
    ORDER BY jobs.id FOR UPDATE OF jobs
)
UPDATE jobs SET attempt = attempt - 1 FROM queued WHERE jobs.id = queued.id
"""


async def return_attempts(
    tx: PostgresTransaction, items: Sequence[tuple[str, int, int]]
) -> list[None]:
    """Give a queued job its last attempt back. The same observation twice gives it back once."""
    jobs, steps = [job for job, _, _ in items], [step for _, step, _ in items]
    await tx.execute(FORGIVE, jobs, steps, [seen for _, _, seen in items])
    return [None] * len(items)


CHANGE_LANES = """
WITH queued AS (
    SELECT jobs.id, v.lane FROM jobs
    JOIN unnest($1::text[], $2::bigint[], $3::text[]) v (id, rev, lane)
        ON jobs.id = v.id AND jobs.rev = v.rev
    WHERE jobs.state = 'queued'
    ORDER BY jobs.id FOR UPDATE OF jobs
)
UPDATE jobs SET lane = queued.lane, rev = rev + 1 FROM queued WHERE jobs.id = queued.id
"""


async def change_lanes(
    tx: PostgresTransaction, items: Sequence[tuple[str, int, str]]
) -> list[None]:
    """Give queued jobs another lane."""
    jobs, revs = [job for job, _, _ in items], [rev for _, rev, _ in items]
    await tx.execute(CHANGE_LANES, jobs, revs, [lane for _, _, lane in items])
    return [None] * len(items)
