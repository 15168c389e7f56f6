"""The fast path of the hot operations (submit, confirm, settle): one SQL statement, which is its
own transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import asyncpg

from fairlane.ledger.claim_rows import wrong_epoch_or_pools
from fairlane.ledger.messages import (
    Common,
    Confirmation,
    Settled,
    Settlement,
    Stale,
    Submission,
    SubmissionAccepted,
    Unconfirmed,
)
from fairlane.ledger.postgres import confirm as confirming
from fairlane.ledger.postgres import settle as settling
from fairlane.ledger.postgres import submit as submitting
from fairlane.ledger.postgres.confirm import BEGIN, RETURNED, START, found_leases, unstarted_outcome
from fairlane.ledger.postgres.fencing import present, too_late
from fairlane.ledger.postgres.named_parameters import Statement, column_names, table
from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.settle import COMPLETE
from fairlane.ledger.postgres.slots import SLOTS, slot_values
from fairlane.ledger.postgres.submit import (
    EXACT_COUNT_MARGIN,
    LINE,
    SHARED_AND_RARE,
    insert_list,
    select_list,
    sent,
    shared_values,
    typed,
)
from fairlane.ledger.postgres.text_arrays import Unpackable, packed, unpacked
from fairlane.ledger.postgres.transaction import Verb
from fairlane.ledger.rows import MAX_INLINE_BYTES
from fairlane.ledger.settle_rows import fits
from fairlane.model.construct import maker
from fairlane.model.lease import Lease
from fairlane.model.service import is_user_pool
from fairlane.model.state import Move, State


class FastPathExtras(NamedTuple):
    """Additional work of the statement: the partition of the queue counter to update, and outbox
    rows to delete."""

    part: int
    cleared: list[int]


class FastPathResult(NamedTuple):
    outcomes: list[Any]
    receipts: tuple[int, ...] = ()


accepted_as = maker(SubmissionAccepted)

Quick = Callable[[Connection, Sequence[Any], FastPathExtras], Awaitable[FastPathResult | None]]
"""Returns None if nothing was written; the normal path then decides."""

# --- submit --------------------------------------------------------------------------------------
GROUP_COLUMNS = f"{typed(sent(SHARED_AND_RARE))}, ids text, usernames text, inputs text"
"""The values that the jobs of a group share, and the values of each job, packed into one text."""

GROUP_NAMES = column_names(GROUP_COLUMNS)

SUBMIT = Statement(f"""
WITH fit AS MATERIALIZED (
    SELECT (SELECT count(*) = 0 FROM quotas
            JOIN unnest(:user_tenants::text[], :user_names::text[]) u (tenant, name)
                ON quotas.tenant = u.tenant AND quotas.username = u.name)
        AND (:most = 0 OR ({LINE}) + :number + {EXACT_COUNT_MARGIN} <= :most) AS ok
), new AS (
    INSERT INTO jobs (id, username, input, {insert_list(SHARED_AND_RARE)})
    SELECT id, username, input, {select_list(SHARED_AND_RARE)}
    FROM {table(GROUP_COLUMNS, "alike")},
        unnest({unpacked("ids")}, {unpacked("usernames")}, {unpacked("inputs")})
            one (id, username, input)
    WHERE (SELECT ok FROM fit)
    RETURNING 1
), counted AS (
    UPDATE line SET queued = queued + :number
    WHERE part = :part AND (SELECT count(*) FROM new) > 0 -- runs after all inserts
), cleared AS (
    DELETE FROM outbox WHERE seq = ANY(:cleared::bigint[])
), named AS MATERIALIZED (
    SELECT {unpacked(":all_ids::text")} AS ids WHERE (SELECT ok FROM fit) -- of all groups
), listed AS (
    INSERT INTO rolls (kind, first, number, jobs) SELECT 'live', :first, :number, ids FROM named
)
INSERT INTO outbox (jobs) SELECT ids FROM named RETURNING seq
""")


async def submit(
    connection: Connection, items: Sequence[Submission], beside: FastPathExtras
) -> FastPathResult | None:
    groups: dict[int, tuple[Common, list[Submission]]] = {}
    for item in items:
        _, _, _, text, common, refusal, idempotency, _, _, _, cells = item
        if (
            refusal is not None
            or idempotency is not None
            or cells
            or len(text or "") > MAX_INLINE_BYTES
        ):
            return None
        group = groups.get(id(common))
        if group is None:
            group = groups[id(common)] = (common, [])
        group[1].append(item)
    quotas = {common.quota for common, _ in groups.values()}
    if any(quota.counts_user for quota in quotas):
        return None
    users = {
        (common.tenant, item.user)
        for common, alike in groups.values()
        for item in alike
        if item.user is not None
    }
    ids = [item.id for item in items]
    try:
        columns = zip(*(_group(*group) for group in groups.values()), strict=True)
        statement = SUBMIT(
            **dict(zip(GROUP_NAMES, columns, strict=True)),
            user_tenants=[tenant for tenant, _ in users],
            user_names=[user for _, user in users],
            most=min((quota.waiting for quota in quotas if quota.waiting), default=0),
            number=len(items),
            all_ids=packed(ids),
            first=min(ids),
            **beside._asdict(),
        )
        seq = await connection.fetchval(*statement)
    except Unpackable:
        return None
    except asyncpg.UniqueViolationError:  # a retry after a lost response
        return None
    if seq is None:
        return None
    return FastPathResult([accepted_as((item.id, item.common.tier)) for item in items], (seq,))


def _group(common: Common, items: list[Submission]) -> tuple[Any, ...]:
    return (
        *shared_values(common),
        packed([item.id for item in items]),
        packed([item.user for item in items]),
        packed([item.input for item in items]),
    )


# --- confirm -------------------------------------------------------------------------------------
PROPOSAL_COLUMNS = (
    "rev bigint, lane text, tier text, worker text, region text, lease bigint, now bigint, "
    "ids text, tokens text, users text"
)
PROPOSAL_NAMES = column_names(PROPOSAL_COLUMNS)
PROPOSALS = f"""(
    SELECT id, token, who, rev, lane, tier, worker, region, lease, now
    FROM {table(PROPOSAL_COLUMNS, "alike")},
        unnest({unpacked("ids")}, {unpacked("tokens")}, {unpacked("users")}) one (id, token, who)
    WHERE (SELECT epoch FROM held) = :epoch
        AND now + 0 = now -- always true; makes the planner expect few rows and look up each job
    ORDER BY id COLLATE "C"
) v"""
CONFIRM = f"""
WITH held AS MATERIALIZED (SELECT hold_settings(:limited::text[]) AS epoch),
started AS (
    {START.format(proposals=PROPOSALS, begin=BEGIN)} RETURNING {RETURNED}
), parents AS (
    UPDATE jobs SET state = 'running', rev = rev + 1, started_at = :started_at
    WHERE state = 'queued' AND id = ANY(ARRAY(
        SELECT id FROM jobs WHERE id IN (SELECT parent FROM started WHERE parent IS NOT NULL)
            AND state = 'queued' ORDER BY id FOR UPDATE))
    RETURNING 1
), counted AS (
    UPDATE line SET queued = queued - (SELECT count(*) FROM started),
        running = running + (SELECT count(*) FROM started)
    WHERE part = :part AND (SELECT count(*) FROM parents) >= 0 -- always true; locks parents first
), cleared AS (
    DELETE FROM outbox WHERE seq = ANY(:cleared::bigint[])
), listed AS (
    INSERT INTO rolls (kind, at, number, jobs)
    SELECT 'leased', min(lease_until), count(*), array_agg(id) FROM started HAVING count(*) > 0
)
"""
CONFIRM_FREELY = Statement(f"{CONFIRM} SELECT * FROM started")
CONFIRM_WITH_SLOTS = Statement(f"""{CONFIRM}, taken AS (
    INSERT INTO slots SELECT v.* FROM {SLOTS}
    WHERE (v.token IN (SELECT token FROM started)) IS TRUE -- a lookup, not a join
)
SELECT * FROM started
""")


async def confirm(
    connection: Connection, items: Sequence[Confirmation], beside: FastPathExtras
) -> FastPathResult | None:
    epoch = items[0].epoch
    groups: dict[tuple[Any, ...], list[Confirmation]] = {}
    limited: set[str] = set()
    wanted: list[tuple[str, int, Confirmation]] = []
    for item in items:
        if wrong_epoch_or_pools(item, epoch) is not None:
            return None
        if item.slots:
            limited.update(item.pools)
            wanted += [(slot.pool, slot.n, item) for slot in item.slots]
        common = (item.rev, item.lane, item.tier, item.worker, item.region, item.lease, item.now)
        groups.setdefault(common, []).append(item)
    if any(map(is_user_pool, limited)):
        return None
    try:
        columns = zip(*(_proposals(*group) for group in groups.items()), strict=True)
        statement = (CONFIRM_WITH_SLOTS if wanted else CONFIRM_FREELY)(
            **dict(zip(PROPOSAL_NAMES, columns, strict=True)),
            limited=list(limited),
            epoch=epoch,
            started_at=items[0].now,
            **beside._asdict(),
            **(slot_values(wanted) if wanted else {}),
        )
        found = await connection.fetch(*statement)
    except (Unpackable, asyncpg.IntegrityConstraintViolationError):
        return None
    if wanted and not found:
        return None
    leases = await found_leases(connection, items, {row[0]: row for row in found})
    return FastPathResult(
        [leases.get(item.token) or await _unstarted_outcome(connection, item) for item in items]
    )


def _proposals(common: tuple[Any, ...], items: list[Confirmation]) -> tuple[Any, ...]:
    return (
        *common,
        packed([item.job for item in items]),
        packed([item.token for item in items]),
        packed([item.user for item in items]),
    )


async def _unstarted_outcome(connection: Connection, item: Confirmation) -> Lease | Unconfirmed:
    epoch = await connection.fetchval("SELECT value FROM meta WHERE name = 'epoch'")
    return await unstarted_outcome(connection, item, wrong_epoch_or_pools(item, epoch))


# --- settle --------------------------------------------------------------------------------------
RESULT_COLUMNS = "now bigint, ids text, tokens text, outputs text, metrics_of_all text"
RESULT_NAMES = column_names(RESULT_COLUMNS)
RESULTS = f"""(
    SELECT id, token, output, metrics, now
    FROM {table(RESULT_COLUMNS, "alike")},
        unnest({unpacked("ids")}, {unpacked("tokens")}, {unpacked("outputs")},
            {unpacked("metrics_of_all")}) one (id, token, output, metrics)
    WHERE now + 0 = now
    ORDER BY id COLLATE "C"
) v"""
SETTLE = Statement(f"""
WITH done AS ({COMPLETE.format(results=RESULTS)}), freed AS MATERIALIZED (
    SELECT free_slots({unpacked(":all_tokens::text")}, count(*)) AS ended FROM done -- after done
), counted AS (
    UPDATE line SET running = running - (SELECT ended FROM freed) WHERE part = :part
), cleared AS (
    DELETE FROM outbox WHERE seq = ANY(:cleared::bigint[])
), listed AS (
    INSERT INTO rolls (kind, at, number, jobs)
    SELECT 'completed', max(now), count(*), array_agg(id) FROM done HAVING count(*) > 0
)
SELECT token FROM done
""")


async def settle(
    connection: Connection, items: Sequence[Settlement], beside: FastPathExtras
) -> FastPathResult | None:
    groups: dict[int, list[Settlement]] = {}
    for item in items:
        if (
            item.move is not Move.COMPLETE
            or item.lease.parent is not None
            or not item.closed
            or not fits(item)
        ):
            return None
        groups.setdefault(item.now, []).append(item)
    try:
        columns = zip(*(_results(*group) for group in groups.items()), strict=True)
        statement = SETTLE(
            **dict(zip(RESULT_NAMES, columns, strict=True)),
            all_tokens=packed([item.lease.token for item in items]),
            **beside._asdict(),
        )
        found = await connection.fetch(*statement)
    except Unpackable:
        return None
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
    return FastPathResult(outcomes)


def _results(now: int, items: list[Settlement]) -> tuple[Any, ...]:
    return (
        now,
        packed([item.lease.job for item in items]),
        packed([item.lease.token for item in items]),
        packed([item.output for item in items]),
        packed([item.metrics for item in items]),
    )


QUICK: dict[Verb, Quick] = {
    submitting.submit: submit,
    confirming.confirm: confirm,
    settling.settle: settle,
}
