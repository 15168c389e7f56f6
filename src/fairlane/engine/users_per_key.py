"""The limit of distinct users per API key in an hour (Sybil protection). See decision 22,
docs/decisions/0022-users-per-key.md."""

from __future__ import annotations

from fairlane.engine.core import Core
from fairlane.errors import Refused
from fairlane.ledger.messages import Submission

MAX_CACHED_USERS = 100_000
LOCAL_KEY = "local"
"""The key of callers in this process and of development mode, which may name any number of
users."""


async def refuse_new_users(
    core: Core, tenant: str, key: str, prepared: list[Submission], now: int
) -> None:
    """Refuse the jobs of users who are one too many for this key. Only users that this process does
    not know to count cost a transaction."""
    limit = core.catalog.limits.users_per_key
    if not limit or key == LOCAL_KEY:
        return
    known = core.key_users.get((tenant, key), {})
    unknown = {
        item.user: None
        for item in prepared
        if item.user is not None and known.get(item.user, 0) <= now and item.refusal is None
    }
    if not unknown:
        return
    counted = await core.ledger.count_users(tenant, key, list(unknown), limit, now)
    _remember(core, (tenant, key), counted.until)
    for n, item in enumerate(prepared):
        if item.user in unknown and item.user not in counted.until and item.refusal is None:
            prepared[n] = item._replace(refusal=too_many_users(limit, counted.frees_at))


def _remember(core: Core, key: tuple[str, str], until: dict[str, int]) -> None:
    if sum(map(len, core.key_users.values())) + len(until) > MAX_CACHED_USERS:
        core.key_users.clear()
    core.key_users.setdefault(key, {}).update(until)


def too_many_users(limit: int, frees_at: int) -> Refused:
    return Refused(
        "too_many_users",
        f"a key may name at most {limit} users in an hour; try again later, or raise "
        "limits.users_per_key",
        limit=limit,
        frees_at=frees_at,
        setting="limits.users_per_key",
    )
