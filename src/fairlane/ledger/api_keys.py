"""API keys in the ledger: the interface that both stores implement."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlane.ledger.running import Read, Write
from fairlane.model.key import Key, Role

MAX_KEYS = 1 << 31


class ApiKeyVerbs(NamedTuple):
    """The functions of one store: `get`, `page`, `names`, `any` and `redeemed` read, the rest
    write."""

    add: Callable[..., Any]
    revoke: Callable[..., Any]
    get: Callable[..., Any]
    page: Callable[..., Any]
    names: Callable[..., Any]
    any: Callable[..., Any]
    secret: Callable[..., Any]
    redeem: Callable[..., Any]
    redeemed: Callable[..., Any]


class ApiKeys:
    def __init__(self, write: Write, read: Read, verbs: ApiKeyVerbs) -> None:
        self._write, self._read, self._verbs = write, read, verbs

    async def add(self, key: Key, actor: str) -> bool:
        """Store a key and audit it, once. False if there is or was a different key with that id.
        Adding the same key again changes nothing: its permissions and its revocation stay."""
        return bool(await self._write(self._verbs.add, KeyAddition(key, actor)))

    async def revoke(self, key: str, now: int, actor: str) -> bool:
        """Revoke a key from now on. False if there is no such key."""
        return bool(await self._write(self._verbs.revoke, KeyRevocation(key, now, actor)))

    async def get(self, key: str) -> Key | None:
        found: Key | None = await self._read(self._verbs.get, key)
        return found

    async def all(self) -> list[Key]:
        """Every key that was ever made, oldest first."""
        return await self.page(None, MAX_KEYS)

    async def page(self, after: str | None, limit: int) -> list[Key]:
        """The first keys, or the first that were made after the key `after` (cursor pagination)."""
        found: list[Key] = await self._read(self._verbs.page, after, limit)
        return found

    async def names(self, most: int) -> frozenset[str]:
        """The ids of every key that was ever made, at most `most` of them."""
        found: frozenset[str] = await self._read(self._verbs.names, most)
        return found

    async def any(self) -> bool:
        """Whether a key was ever made."""
        return bool(await self._read(self._verbs.any))

    async def secret(self) -> bytes:
        """The signing secret, which is the same for every process of this ledger and never
        changes."""
        return bytes.fromhex(await self._write(self._verbs.secret, secrets.token_hex(32)))

    async def redeem(self, ticket: str, until: int, now: int) -> bool:
        """Use up a single-use ticket. True for the first call only, however many callers there
        are."""
        return bool(await self._write(self._verbs.redeem, KeyRedemption(ticket, until, now)))

    async def redeemed(self, ticket: str) -> bool:
        """Whether a ticket was used up, or a session was ended, and its time is not over."""
        return bool(await self._read(self._verbs.redeemed, ticket))


class KeyAddition(NamedTuple):
    key: Key
    actor: str


class KeyRevocation(NamedTuple):
    key: str
    now: int
    actor: str


class KeyRedemption(NamedTuple):
    ticket: str
    until: int
    now: int


COLUMNS = "id, tenant, role, hash, name, act_as, set_priority, created_at, expires_at, revoked_at"


def values(key: Key) -> tuple[Any, ...]:
    return (
        key.id,
        key.tenant,
        str(key.role),
        key.hash,
        key.name,
        key.act_as,
        key.set_priority,
        key.created_at,
        key.expires_at,
        key.revoked_at,
    )


def key_of(row: Sequence[Any]) -> Key:
    name, tenant, role, digest, title, act_as, set_priority, *times = row
    return Key(name, tenant, Role(role), digest, title, bool(act_as), bool(set_priority), *times)


def audit_text(key: Key) -> str:
    """The audit log's text for a new key."""
    return f"{key.role} of {key.tenant}"
