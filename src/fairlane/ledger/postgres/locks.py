"""The lock order: every operation locks rows in one order, so that no two deadlock. See decision 5,
docs/decisions/0005-postgres.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlane.ledger.messages import Request
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.model.job import fair_user

USERS = "SELECT pg_advisory_xact_lock(hashtextextended(who, 7)) FROM unnest($1::text[]) who"

NAMED = """
SELECT jobs.id, jobs.parent, jobs.tenant, jobs.username, jobs.key
FROM unnest($1::text[], $2::text[]) v (id, tenant)
JOIN jobs ON jobs.id = v.id AND jobs.tenant = coalesce(v.tenant, jobs.tenant)
"""
ONES = f"WITH named AS MATERIALIZED ({NAMED}) SELECT id FROM named"
FAMILIES = f"""
{ONES} UNION ALL SELECT parent FROM named WHERE parent IS NOT NULL
UNION ALL SELECT jobs.id FROM jobs JOIN named ON jobs.parent = named.id
"""
IN_ORDER = "ORDER BY cells > 0, id FOR UPDATE"
"""A job's owner, and whether it is a fan-out, never change, so the order is known before any
lock."""

HOLD_JOBS = f"SELECT id FROM jobs WHERE id = ANY($1::text[]) {IN_ORDER}"
HOLD_NAMED = f"SELECT id FROM jobs WHERE id = ANY(ARRAY({ONES})) {IN_ORDER}"
HOLD_FAMILIES = f"SELECT id FROM jobs WHERE id = ANY(ARRAY({FAMILIES})) {IN_ORDER}"

Held = frozenset[str]
"""Jobs that this transaction has locked until it ends."""


# --- users ---------------------------------------------------------------------------------------
async def hold_users(tx: PostgresTransaction, users: Iterable[str]) -> None:
    """Lock these users' job counts until this transaction ends."""
    await tx.execute(USERS, sorted(users))


async def hold_owners(tx: PostgresTransaction, requests: Sequence[Request]) -> None:
    """Lock the job counts of the users who own these jobs. Requests for another tenant's job lock
    nothing."""
    found = await tx.fetch(NAMED, *_names(requests))
    await hold_users(tx, {fair_user(*owner) for _, _, *owner in found})


# --- jobs ----------------------------------------------------------------------------------------
async def hold_jobs(tx: PostgresTransaction, ids: Sequence[str]) -> Held:
    """Lock those of these jobs that exist."""
    return frozenset(row[0] for row in await tx.fetch(HOLD_JOBS, ids)) if ids else frozenset()


async def hold_named(tx: PostgresTransaction, requests: Sequence[Request]) -> Held:
    """Lock the requested jobs that belong to the requesting tenant."""
    return frozenset(row[0] for row in await tx.fetch(HOLD_NAMED, *_names(requests)))


async def hold_families(tx: PostgresTransaction, requests: Sequence[Request]) -> Held:
    """Lock the requested jobs as `hold_named` does, with their cells and their parents."""
    return frozenset(row[0] for row in await tx.fetch(HOLD_FAMILIES, *_names(requests)))


def _names(requests: Sequence[Request]) -> tuple[list[str], list[str | None]]:
    return [each.job for each in requests], [each.tenant for each in requests]
