"""Slots (counting semaphore): a row exists while a slot is taken. A proposal gets all the slots it
names or none.

Limits do not change meanwhile (claims share `SETTINGS_LOCK`). The primary key decides which of two
concurrent claims gets a slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg

from fairlane.ledger.messages import Confirmation, Settlement, Unconfirmed
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.model.lease import Slot
from fairlane.model.service import RATE_WINDOW_MICROSECONDS, is_rate_pool, is_user_pool

SLOTS = table("pool text, n bigint, token text, job text, until bigint")
INSERT = Statement(f"INSERT INTO slots SELECT * FROM {SLOTS}")

NOT_FREE = "slot taken or above the limit"

Wanted = list[tuple[str, int, Confirmation]]


async def take_all(tx: PostgresTransaction, items: Sequence[Confirmation]) -> bool:
    """Take every slot of every item, if all of them are free and within their limits."""
    wanted = [(slot.pool, slot.n, item) for item in items for slot in item.slots]
    if not wanted:
        return True
    if not await _within_limits(tx, wanted):
        return False
    try:
        async with tx.savepoint():
            await _insert(tx, wanted)
    except asyncpg.IntegrityConstraintViolationError:
        return False
    return True


async def _insert(tx: PostgresTransaction, wanted: Wanted) -> None:
    await tx.execute(*INSERT(**slot_values(wanted)))


def slot_values(wanted: Wanted) -> dict[str, list[Any]]:
    """The parameters of `SLOTS`, always in one order, which prevents deadlocks."""
    wanted = sorted(wanted, key=lambda each: each[:2])
    return {
        "pool": [pool for pool, _, _ in wanted],
        "n": [n for _, n, _ in wanted],
        "token": [item.token for _, _, item in wanted],
        "job": [item.job for _, _, item in wanted],
        "until": [_until(pool, item.now) for pool, _, item in wanted],
    }


async def _within_limits(tx: PostgresTransaction, wanted: Wanted) -> bool:
    """Check the slot numbers against the limits. The primary key checks whether a slot is free."""
    pools = sorted({pool for pool, _, _ in wanted})
    sizes = {}
    for name, size, drain in await tx.fetch(
        "SELECT name, size, drain FROM pools WHERE name = ANY($1)", pools
    ):
        if drain > size:
            return False
        sizes[name] = size
    own = {pool: item.cap for pool, _, item in wanted if is_user_pool(pool)}
    if any(not 0 < n <= sizes.get(pool, own.get(pool, 0)) for pool, n, _ in wanted):
        return False
    if not own:
        return True
    highest = await tx.fetch(
        "SELECT pool, max(n) FROM slots WHERE pool = ANY($1) GROUP BY pool", sorted(own)
    )
    return all(most <= own[pool] for pool, most in highest)


HOLD = "SELECT pg_advisory_xact_lock(hashtextextended(pool, 9)) FROM unnest($1::text[]) pool"


async def hold(tx: PostgresTransaction, items: Iterable[Confirmation]) -> None:
    """Lock these pools: a pool that drains is counted by one transaction at a time. All are locked
    at once and in one order, which prevents deadlocks."""
    await tx.execute(HOLD, sorted({slot.pool for item in items for slot in item.slots}))


async def take(tx: PostgresTransaction, item: Confirmation) -> Unconfirmed | None:
    """Take all slots of one proposal or none, with its pools locked. The lock timeout is short (5
    ms): this transaction may hold slots that the one it waits for needs, so waiting could
    deadlock."""
    try:
        async with tx.savepoint():
            await tx.execute("SET LOCAL lock_timeout = '5ms'")
            refusal = await _take(tx, item)
            await tx.execute("SET LOCAL lock_timeout TO DEFAULT")
            return refusal
    except asyncpg.LockNotAvailableError:
        return Unconfirmed(NOT_FREE, tuple(slot.pool for slot in item.slots))


async def _take(tx: PostgresTransaction, item: Confirmation) -> Unconfirmed | None:
    if not item.slots or await _runs_already(tx, item):
        return None
    wrong = [
        slot.pool
        for slot in sorted(item.slots)
        if not await _is_free(tx, slot.pool, slot.n, item.cap, item.now)
    ]
    if not wrong:
        try:
            async with tx.savepoint():
                await _insert(tx, [(slot.pool, slot.n, item) for slot in item.slots])
        except asyncpg.IntegrityConstraintViolationError:
            wrong = [slot.pool for slot in item.slots]
    return Unconfirmed(NOT_FREE, tuple(wrong)) if wrong else None


async def _runs_already(tx: PostgresTransaction, item: Confirmation) -> bool:
    """Whether a repeated claim has its slots, or had them; it takes no further ones."""
    found = await tx.fetchval(
        "SELECT 1 FROM jobs WHERE id = $1 AND token = $2", item.job, item.token
    )
    return found is not None


def _until(pool: str, now: int) -> int | None:
    """When a slot expires by itself: only a rate limit's slot does."""
    return now + RATE_WINDOW_MICROSECONDS if is_rate_pool(pool) else None


FREE_DUE = """
DELETE FROM slots WHERE pool = $1 AND n IN (
    SELECT n FROM slots WHERE pool = $1 AND until <= $2 FOR UPDATE SKIP LOCKED)
"""
"""A slot that another transaction is just freeing is skipped, not waited for."""


async def _is_free(tx: PostgresTransaction, pool: str, n: int, cap: int, now: int) -> bool:
    known = await tx.fetchval("SELECT size FROM pools WHERE name = $1", pool)
    size = known if known is not None else cap if is_user_pool(pool) else 0
    if not 0 < n <= size:
        return False
    if await _has_room(tx, pool, n, size):
        return True
    await tx.execute(FREE_DUE, pool, now)
    return await _has_room(tx, pool, n, size)


async def _has_room(tx: PostgresTransaction, pool: str, n: int, size: int) -> bool:
    ((above, same, held),) = await tx.fetch(
        "SELECT EXISTS (SELECT 1 FROM slots WHERE pool = $1 AND n > $2), "
        "EXISTS (SELECT 1 FROM slots WHERE pool = $1 AND n = $3), "
        "(SELECT count(*) FROM slots WHERE pool = $1)",
        pool,
        size,
        n,
    )
    return not same and (not above or held < size)


# --- freeing -------------------------------------------------------------------------------------
async def free(
    tx: PostgresTransaction, items: Iterable[Settlement], winners: set[str]
) -> dict[str, tuple[Slot, ...]]:
    """Free the slots of a token, except those of rates, which expire by themselves. If the call may
    still be open and its service is strict, the slots are kept; a user's own cap is freed at
    once."""
    kept: dict[str, tuple[Slot, ...]] = {}
    closed: list[str] = []
    over: list[str] = []
    for item in items:
        token = item.lease.token
        if item.closed:
            closed.append(token)
        elif not item.strict:
            over.append(token)
        elif token in winners:
            kept[token] = await keep_until(tx, token, item.lease.deadline)
    if over:
        await tx.execute("DELETE FROM slots WHERE token = ANY($1) AND until IS NULL", over)
    if closed:  # slots kept for the call, too; a rate's row is not kept, it expires
        await tx.execute(
            "DELETE FROM slots WHERE token = ANY($1) AND pool NOT LIKE 'rate:%'", closed
        )
    return kept


async def keep_until(tx: PostgresTransaction, token: str, until: int) -> tuple[Slot, ...]:
    """Keep the token's slots taken until then, except those of its user's own cap."""
    await tx.execute("DELETE FROM slots WHERE token = $1 AND pool LIKE 'user:%'", token)
    await tx.execute("UPDATE slots SET until = $1 WHERE token = $2 AND until IS NULL", until, token)
    rows = await tx.fetch("SELECT pool, n, until FROM slots WHERE token = $1", token)
    return tuple(Slot(pool, n, end) for pool, n, end in rows)
