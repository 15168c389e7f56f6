"""Slots (counting semaphore): a row exists while a slot is taken. A proposal gets all the slots it
names or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain

from fairlane.ledger.messages import Confirmation, Settlement, Unconfirmed
from fairlane.ledger.sqlite.statements import chunks, insert, marks, parts
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.model.lease import Slot
from fairlane.model.service import RATE_WINDOW_MICROSECONDS, is_rate_pool, is_user_pool


def take_all(tx: SqliteTransaction, items: Sequence[Confirmation]) -> bool:
    """Take every slot of every item, if all of them are free and within their limits."""
    wanted = [(slot.pool, slot.n, item) for item in items for slot in item.slots]
    if not _within_limits(tx, wanted):
        return False
    rows = [(pool, n, item.token, item.job, _until(pool, item.now)) for pool, n, item in wanted]
    try:
        for part in parts(rows):
            tx.execute(insert("slots", 5, len(part)), list(chain.from_iterable(part)))
    except sqlite3.IntegrityError:
        return False
    return True


def _within_limits(tx: SqliteTransaction, wanted: Sequence[tuple[str, int, Confirmation]]) -> bool:
    """Check the slot numbers against the limits. The primary key checks whether a slot is free."""
    pools = sorted({pool for pool, _, _ in wanted})
    sizes = {
        name: size
        for part in chunks(pools)
        for name, size in tx.execute(
            f"SELECT name, size FROM pools WHERE name IN ({marks(part)})", part
        )
    }
    own = {pool: item.cap for pool, _, item in wanted if is_user_pool(pool)}
    if any(not 0 < n <= sizes.get(pool, own.get(pool, 0)) for pool, n, _ in wanted):
        return False
    return all(
        highest <= own[pool]
        for part in chunks(sorted(own))
        for pool, highest in tx.execute(
            f"SELECT pool, max(n) FROM slots WHERE pool IN ({marks(part)}) GROUP BY pool", part
        )
    )


def take(tx: SqliteTransaction, item: Confirmation) -> Unconfirmed | None:
    """Take all slots or none. There is one writer, so a slot that is free in the check is free in
    the insert."""
    if not item.slots or _runs_already(tx, item):
        return None
    wrong = [
        slot.pool for slot in item.slots if not _is_free(tx, slot.pool, slot.n, item.cap, item.now)
    ]
    if wrong:
        return Unconfirmed("slot taken or above the limit", tuple(wrong))
    tx.executemany(
        "INSERT INTO slots VALUES (?, ?, ?, ?, ?)",
        [
            (slot.pool, slot.n, item.token, item.job, _until(slot.pool, item.now))
            for slot in item.slots
        ],
    )
    return None


def _runs_already(tx: SqliteTransaction, item: Confirmation) -> bool:
    """Whether a repeated claim has its slots, or had them; it takes no further ones."""
    found = tx.execute("SELECT 1 FROM jobs WHERE id = ? AND token = ?", (item.job, item.token))
    return found.fetchone() is not None


def _until(pool: str, now: int) -> int | None:
    """When a slot expires by itself: only a rate limit's slot does."""
    return now + RATE_WINDOW_MICROSECONDS if is_rate_pool(pool) else None


def _is_free(tx: SqliteTransaction, pool: str, n: int, cap: int, now: int) -> bool:
    row = tx.execute("SELECT size FROM pools WHERE name = ?", (pool,)).fetchone()
    size = row[0] if row is not None else cap if is_user_pool(pool) else 0
    if not 0 < n <= size:
        return False
    if _has_room(tx, pool, n, size):
        return True
    tx.execute("DELETE FROM slots WHERE pool = ? AND until <= ?", (pool, now))
    return _has_room(tx, pool, n, size)


def _has_room(tx: SqliteTransaction, pool: str, n: int, size: int) -> bool:
    above, same = tx.execute(
        "SELECT EXISTS (SELECT 1 FROM slots WHERE pool = ? AND n > ?), "
        "EXISTS (SELECT 1 FROM slots WHERE pool = ? AND n = ?)",
        (pool, size, pool, n),
    ).fetchone()
    if same or not above:
        return not same
    (held,) = tx.execute("SELECT count(*) FROM slots WHERE pool = ?", (pool,)).fetchone()
    return bool(held < size)


# --- freeing ------------------------------------------------------------------------------------
def free(
    tx: SqliteTransaction, items: Iterable[Settlement], winners: set[str]
) -> dict[str, tuple[Slot, ...]]:
    """Free the slots of a token, except those of rates, which expire by themselves. If the call may
    still be open and its service is strict, the slots are kept; a user's own cap is freed at
    once."""
    kept: dict[str, tuple[Slot, ...]] = {}
    if tx.execute("SELECT 1 FROM slots LIMIT 1").fetchone() is None:
        return kept
    closed: list[str] = []
    for item in items:
        token = item.lease.token
        if item.closed:
            closed.append(token)
        elif not item.strict:
            tx.execute("DELETE FROM slots WHERE token = ? AND until IS NULL", (token,))
        elif token in winners:
            kept[token] = keep_until(tx, token, item.lease.deadline)
    _free_closed(tx, closed)
    return kept


def _free_closed(tx: SqliteTransaction, tokens: Sequence[str]) -> None:
    """Free the slots of closed calls, with those that were kept for them. A rate's row is not kept;
    it expires."""
    for part in parts(tokens):
        tx.execute(
            f"DELETE FROM slots WHERE token IN ({marks(part)}) AND pool NOT LIKE 'rate:%'", part
        )


def keep_until(tx: SqliteTransaction, token: str, until: int) -> tuple[Slot, ...]:
    """Keep the token's slots taken until then, except those of its user's own cap."""
    tx.execute("DELETE FROM slots WHERE token = ? AND pool LIKE 'user:%'", (token,))
    tx.execute("UPDATE slots SET until = ? WHERE token = ? AND until IS NULL", (until, token))
    return tuple(
        Slot(pool, n, end)
        for pool, n, end in tx.execute("SELECT pool, n, until FROM slots WHERE token = ?", (token,))
    )
