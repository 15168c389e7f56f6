"""Job lists (table `rolls`): a coarse secondary index of live, running and ended jobs with many ids
per row, so that no index on the jobs table has to follow every change."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.transaction import PostgresTransaction

LIVE, LEASED = "live", "leased"

IN_ROLL = "id = ANY(ARRAY(SELECT unnest(rolls.jobs) FROM rolls WHERE kind = '{}'))"
"""An array, so that jobs are always looked up by id. A join may be planned the other way round,
every job against every list: harmless while the tables are empty, but the plan is cached."""

IS_LIVE = f"{IN_ROLL.format(LIVE)} AND finished_at IS NULL"
IS_LEASED = f"{IN_ROLL.format(LEASED)} AND token IS NOT NULL"
OLDEST_LIVE = f"SELECT coalesce(min(first), '~') FROM rolls WHERE kind = '{LIVE}'"
"""A lower bound: no live job has a smaller id."""

ADD_TO_LIST = Statement("""
INSERT INTO rolls (kind, at, first, number, jobs)
VALUES (:kind::text, :at::bigint, :first::text, cardinality(:jobs::text[]), :jobs)
""")
ADD_TO_LIVE_LIST = """
INSERT INTO rolls (kind, first, number, jobs)
VALUES ('live', $1::text, cardinality($2::text[]), $2)
"""


async def add_to_list(tx: PostgresTransaction, kind: str, at: int, jobs: Sequence[str]) -> None:
    """Add jobs to a list that is due for inspection at `at`. For ended jobs that is when they
    ended; for leased ones, when the first of these leases ends."""
    if jobs:
        await tx.execute(*ADD_TO_LIST(kind=kind, at=at, first=min(jobs), jobs=jobs))


async def add_to_live_list(tx: PostgresTransaction, jobs: Sequence[str]) -> None:
    if jobs:
        await tx.execute(ADD_TO_LIVE_LIST, min(jobs), jobs)


# --- looking through them ------------------------------------------------------------------------
ROWS, JOBS = 50, 1000
"""Rows inspected in one transaction, and the most job ids that are merged into one row."""

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


async def inspect_leased(tx: PostgresTransaction, items: Sequence[int]) -> list[None]:
    """Inspect the lists of leased jobs that are due now. Jobs that no longer run are removed; the
    rest are due when their leases end."""
    await tx.execute(STILL_LEASED, ROWS, JOBS, max(items))
    return [None] * len(items)


async def inspect_live(tx: PostgresTransaction, items: Sequence[int]) -> list[bool]:
    """Inspect the lists of live jobs. Only finished jobs are removed, at the earliest a minute
    after they were added or last seen alive. Returns whether there may be more."""
    return [await tx.fetchval(STILL_LIVE, ROWS, JOBS) == ROWS for _ in items]
