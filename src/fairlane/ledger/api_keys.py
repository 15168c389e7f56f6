"""API keys in the ledger: the interface that both ledgers implement."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlane.ledger.running import Read, Write
from fairlane.model.key import Key, Role

MAX_KEYS = 1 << 31


class ApiKeyVerbs(NamedTuple):
    """How one store does it: `get`, `page`, `names` and `any` read, the others write."""

    add: Callable[..., Any]
    revoke: Callable[..., Any]
    get: Callable[..., Any]
    page: Callable[..., Any]
    names: Callable[..., Any]
    any: Callable[..., Any]
    secret: Callable[..., Any]
    redeem: Callable[..., Any]


class ApiKeys:
    def __init__(self, write: Write, read: Read, verbs: ApiKeyVerbs) -> None:
        self._write, self._read, self._verbs = write, read, verbs

    async def add(self, key: Key, actor: str) -> bool:
        """Kept and audited, once; False if there is or was another key with that id. The same key
        again changes nothing: what it opens, and whether it was revoked, stays."""
        return bool(await self._write(self._verbs.add, KeyAddition(key, actor)))

    async def revoke(self, key: str, now: int, actor: str) -> bool:
        """It opens nothing any more, from now on; False if there is no such key."""
        return bool(await self._write(self._verbs.revoke, KeyRevocation(key, now, actor)))

    async def get(self, key: str) -> Key | None:
        found: Key | None = await self._read(self._verbs.get, key)
        return found

    async def all(self) -> list[Key]:
        """Every key that was ever made, oldest first."""
        return await self.page(None, MAX_KEYS)

    async def page(self, after: str | None, limit: int) -> list[Key]:
        """The first of them, or of those that were made after this one."""
        found: list[Key] = await self._read(self._verbs.page, after, limit)
        return found

    async def names(self, most: int) -> frozenset[str]:
        """The ids of every key that was ever made, or of so many."""
        found: frozenset[str] = await self._read(self._verbs.names, most)
        return found

    async def any(self) -> bool:
        """Whether a key was ever made."""
        return bool(await self._read(self._verbs.any))

    async def secret(self) -> bytes:
        """The same for every process of this ledger, always."""
        return bytes.fromhex(await self._write(self._verbs.secret, secrets.token_hex(32)))

    async def redeem(self, ticket: str, until: int, now: int) -> bool:
        """True once for a ticket, whoever asks and how often."""
        return bool(await self._write(self._verbs.redeem, KeyRedemption(ticket, until, now)))


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


def told(key: Key) -> str:
    """What the audit says of a new key."""
    return f"{key.role} of {key.tenant}"
