"""Lists of live, running and ended jobs, many ids per row, so that no index on the jobs table has
to follow every change."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.transaction import PostgresTransaction

LIVE, LEASED = "live", "leased"

IN_ROLL = "id = ANY(ARRAY(SELECT unnest(rolls.jobs) FROM rolls WHERE kind = '{}'))"
"""As an array, so that jobs are always looked up by their ids. A join may be planned the other way
round, every job of the table against every roll: harmless while the tables are empty, but the plan
is kept."""

IS_LIVE = f"{IN_ROLL.format(LIVE)} AND finished_at IS NULL"
IS_LEASED = f"{IN_ROLL.format(LEASED)} AND token IS NOT NULL"
OLDEST_LIVE = f"SELECT coalesce(min(first), '~') FROM rolls WHERE kind = '{LIVE}'"
"""No live job has a smaller id."""

ENROL = Statement("""
INSERT INTO rolls (kind, at, first, number, jobs)
VALUES (:kind::text, :at::bigint, :first::text, cardinality(:jobs::text[]), :jobs)
""")
ENROL_LIVE = """
INSERT INTO rolls (kind, first, number, jobs)
VALUES ('live', $1::text, cardinality($2::text[]), $2)
"""


async def enrol(tx: PostgresTransaction, kind: str, at: int, jobs: Sequence[str]) -> None:
    """From `at` on somebody will look. Ended jobs: when they ended; leased ones: when the first of
    these leases ends."""
    if jobs:
        await tx.execute(*ENROL(kind=kind, at=at, first=min(jobs), jobs=jobs))


async def enrol_live(tx: PostgresTransaction, jobs: Sequence[str]) -> None:
    if jobs:
        await tx.execute(ENROL_LIVE, min(jobs), jobs)


# --- looking through them ------------------------------------------------------------------------
ROWS, JOBS = 50, 1000
"""Rows looked through in one transaction, and the most jobs that are put together in one."""

DUE = """
WITH due AS (
    DELETE FROM rolls WHERE (kind, at, seq) IN (
        SELECT kind, at, seq FROM rolls WHERE kind = '{kind}' AND at <= {until}
        ORDER BY at LIMIT $1 FOR UPDATE SKIP LOCKED)
    RETURNING rolls.jobs
)
"""
STILL_LEASED = f"""{DUE.format(kind=LEASED, until="$3")}, held AS (
    SELECT id, lease_until, (row_number() OVER (ORDER BY lease_until) - 1) / $2 AS part FROM jobs
    WHERE id = ANY(ARRAY(SELECT unnest(due.jobs) FROM due)) AND token IS NOT NULL
)
INSERT INTO rolls (kind, at, number, jobs)
SELECT '{LEASED}', min(lease_until), count(*), array_agg(id) FROM held GROUP BY part
"""
A_MINUTE_AGO = "(extract(epoch FROM now()) * 1000000)::bigint - 60000000"
STILL_LIVE = f"""{DUE.format(kind=LIVE, until=A_MINUTE_AGO)}, alive AS (
    SELECT id, (row_number() OVER (ORDER BY id) - 1) / $2 AS part FROM jobs
    WHERE id = ANY(ARRAY(SELECT unnest(due.jobs) FROM due)) AND finished_at IS NULL
), kept AS (
    INSERT INTO rolls (kind, first, number, jobs)
    SELECT '{LIVE}', min(id), count(*), array_agg(id) FROM alive GROUP BY part
)
SELECT count(*) FROM due
"""


async def look_through_leases(tx: PostgresTransaction, items: Sequence[int]) -> list[None]:
    """Now. What runs no longer is struck off; the others are due when their leases end."""
    await tx.execute(STILL_LEASED, ROWS, JOBS, max(items))
    return [None] * len(items)


async def look_through_live(tx: PostgresTransaction, items: Sequence[int]) -> list[bool]:
    """Nothing but finished jobs is struck off, a minute after they were enrolled or last seen
    alive. Whether there may be more."""
    return [await tx.fetchval(STILL_LIVE, ROWS, JOBS) == ROWS for _ in items]
