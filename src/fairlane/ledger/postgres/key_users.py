"""Distinct users per API key (Sybil protection) in PostgreSQL. See decision 22,
docs/decisions/0022-users-per-key.md."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.messages import CountedUsers
from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.requests import KeyUsers
from fairlane.policy.quotas import HOUR_MICROSECONDS

HOLD_KEYS = "SELECT pg_advisory_xact_lock(hashtextextended(key, 8)) FROM unnest($1::text[]) key"

OF_KEY = "FROM key_users WHERE tenant = :tenant AND key = :key"
COUNTED = Statement(
    f"SELECT username, until {OF_KEY} AND until > :now AND username = ANY(:users::text[])"
)
NEWEST = Statement(f"SELECT n, until {OF_KEY} ORDER BY until DESC, n DESC LIMIT 1")
OLDEST_COUNTED = Statement(f"SELECT n {OF_KEY} AND until > :now ORDER BY until, n LIMIT 1")
NTH_COUNTED = Statement(
    f"SELECT until {OF_KEY} AND until > :now ORDER BY until, n LIMIT 1 OFFSET :earlier"
)
ADD = Statement("""
INSERT INTO key_users
SELECT :tenant::text, :key::text, username, :newest::bigint + place, :until::bigint
FROM unnest(:users::text[]) WITH ORDINALITY v (username, place) ORDER BY username COLLATE "C"
ON CONFLICT (tenant, key, username) DO UPDATE SET n = excluded.n, until = excluded.until
""")
FORGET = """
DELETE FROM key_users WHERE (tenant, key, username) IN (
    SELECT tenant, key, username FROM key_users WHERE until <= $1 FOR UPDATE SKIP LOCKED)
"""


async def count_users(tx: PostgresTransaction, items: Sequence[KeyUsers]) -> list[CountedUsers]:
    await tx.execute(HOLD_KEYS, sorted({f"{item.tenant}/{item.key}" for item in items}))
    counted = {key: await _count(tx, _merged(calls)) for key, calls in _by_key(items).items()}
    return [_own(item, counted[item.tenant, item.key, item.limit]) for item in items]


def _by_key(items: Sequence[KeyUsers]) -> dict[tuple[str, str, int], list[KeyUsers]]:
    found: dict[tuple[str, str, int], list[KeyUsers]] = {}
    for item in items:
        found.setdefault((item.tenant, item.key, item.limit), []).append(item)
    return found


def _merged(calls: Sequence[KeyUsers]) -> KeyUsers:
    """The users of all calls, in their order. Merged calls cost as few statements as one."""
    users = list(dict.fromkeys(user for call in calls for user in call.users))
    return calls[0]._replace(users=users, now=max(call.now for call in calls))


def _own(item: KeyUsers, counted: CountedUsers) -> CountedUsers:
    """The part of the answer to merged calls that belongs to this call."""
    until = {user: counted.until[user] for user in item.users if user in counted.until}
    return CountedUsers(until, counted.frees_at if len(until) < len(item.users) else 0)


async def forget(tx: PostgresTransaction, items: Sequence[int]) -> list[None]:
    await tx.execute(FORGET, max(items))
    return [None] * len(items)


async def _count(tx: PostgresTransaction, item: KeyUsers) -> CountedUsers:
    of_key = {"tenant": item.tenant, "key": item.key}
    found = await tx.fetch(*COUNTED(**of_key, now=item.now, users=item.users))
    counted: dict[str, int] = {row[0]: row[1] for row in found}
    new = [user for user in item.users if user not in counted]
    if not new:
        return CountedUsers(counted)
    newest, latest = await tx.fetchrow(*NEWEST(**of_key)) or (0, 0)
    oldest = await tx.fetchval(*OLDEST_COUNTED(**of_key, now=item.now))
    number = newest + 1 - oldest if oldest is not None else 0
    accepted = new[: max(0, item.limit - number)]
    until = max(latest, item.now + HOUR_MICROSECONDS)
    if accepted:
        await tx.execute(*ADD(**of_key, newest=newest, until=until, users=accepted))
    counted |= dict.fromkeys(accepted, until)
    if len(accepted) == len(new):
        return CountedUsers(counted)
    too_many = number + len(accepted) - item.limit
    frees_at = await tx.fetchval(*NTH_COUNTED(**of_key, now=item.now, earlier=too_many))
    return CountedUsers(counted, frees_at if frees_at is not None else latest)
