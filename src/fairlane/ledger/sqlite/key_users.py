"""Distinct users per API key (Sybil protection) in SQLite. See decision 22,
docs/decisions/0022-users-per-key.md."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.messages import CountedUsers
from fairlane.ledger.requests import KeyUsers
from fairlane.ledger.sqlite.statements import chunks, marks
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.policy.quotas import HOUR_MICROSECONDS

OF_KEY = "FROM key_users WHERE tenant = ? AND key = ?"
NEWEST = f"SELECT n, until {OF_KEY} ORDER BY until DESC, n DESC LIMIT 1"
OLDEST_COUNTED = f"SELECT n {OF_KEY} AND until > ? ORDER BY until, n LIMIT 1"
NTH_COUNTED = f"SELECT until {OF_KEY} AND until > ? ORDER BY until, n LIMIT 1 OFFSET ?"


def count_users(tx: SqliteTransaction, items: Sequence[KeyUsers]) -> list[CountedUsers]:
    return [_count(tx, item) for item in items]


def forget(tx: SqliteTransaction, items: Sequence[int]) -> list[None]:
    tx.executemany("DELETE FROM key_users WHERE until <= ?", [(now,) for now in items])
    return [None] * len(items)


def _count(tx: SqliteTransaction, item: KeyUsers) -> CountedUsers:
    of_key = (item.tenant, item.key)
    counted = {
        user: until
        for part in chunks(item.users)
        for user, until in tx.execute(
            f"SELECT user, until {OF_KEY} AND until > ? AND user IN ({marks(part)})",
            (*of_key, item.now, *part),
        )
    }
    new = [user for user in item.users if user not in counted]
    if not new:
        return CountedUsers(counted)
    newest, latest = tx.execute(NEWEST, of_key).fetchone() or (0, 0)
    oldest = tx.execute(OLDEST_COUNTED, (*of_key, item.now)).fetchone()
    number = newest + 1 - oldest[0] if oldest is not None else 0
    accepted = new[: max(0, item.limit - number)]
    until = max(latest, item.now + HOUR_MICROSECONDS)
    tx.executemany(
        "INSERT OR REPLACE INTO key_users VALUES (?, ?, ?, ?, ?)",
        [(*of_key, user, newest + i, until) for i, user in enumerate(accepted, 1)],
    )
    counted |= dict.fromkeys(accepted, until)
    if len(accepted) == len(new):
        return CountedUsers(counted)
    too_many = number + len(accepted) - item.limit
    row = tx.execute(NTH_COUNTED, (*of_key, item.now, too_many)).fetchone()
    return CountedUsers(counted, row[0] if row is not None else latest)
