"""An API key: its tenant, its role, and for which users it may act."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    CLIENT = "client"
    READ = "read"
    WORKER = "worker"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Key:
    """`hash` is the hash of the secret; the secret is not stored. `act_as`: the key may name any
    user of its tenant. `set_priority`: it may choose a tier. Times are microseconds."""

    id: str
    tenant: str
    role: Role
    hash: str
    name: str = ""
    act_as: bool = True
    set_priority: bool = False
    created_at: int = 0
    expires_at: int | None = None
    revoked_at: int | None = None

    def holds(self, now: int) -> bool:
        """Whether the key is valid now: neither expired nor revoked."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
