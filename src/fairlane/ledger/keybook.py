"""What every ledger keeps about who may call. One guarantee a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from fairlane.model.key import Key, Role


class KeyBook(Protocol):
    async def add(self, key: Key, actor: str) -> bool:
        """Kept and audited, unless there is or was a key with that id."""

    async def revoke(self, key: str, now: int, actor: str) -> bool:
        """It opens nothing any more, from now on; False if there is no such key."""

    async def get(self, key: str) -> Key | None: ...

    async def all(self) -> list[Key]:
        """Every key that was ever made, oldest first."""

    async def any(self) -> bool:
        """Whether a key was ever made."""

    async def secret(self) -> bytes:
        """The same for every process of this ledger, always."""

    async def redeem(self, ticket: str, until: int, now: int) -> bool:
        """True once for a ticket, whoever asks and how often."""


class Addition(NamedTuple):
    key: Key
    actor: str


class Revocation(NamedTuple):
    key: str
    now: int
    actor: str


class Redemption(NamedTuple):
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
