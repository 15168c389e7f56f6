"""Bulk actions in the ledger: what was previewed and how far it is. Both stores implement this
interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fairlane.ledger.running import Read, Write


class BulkVerbs(NamedTuple):
    """The functions of one store: one reads, the other writes."""

    get: Callable[..., Any]
    put: Callable[..., Any]


class BulkAudit(NamedTuple):
    """The entry in the audit log that a write of a bulk action makes."""

    at: int
    actor: str
    action: str
    target: str
    before: str
    after: str


class BulkRow(NamedTuple):
    """`body` is JSON. The row may be deleted after `until` (µs). `expected` is the `until` of the
    version that this one replaces (optimistic locking)."""

    id: str
    tenant: str
    until: int
    body: str
    now: int
    expected: int = 0
    audit: BulkAudit | None = None


class BulkRecords:
    def __init__(self, write: Write, read: Read, verbs: BulkVerbs) -> None:
        self._write, self._read, self._verbs = write, read, verbs

    async def get(self, bulk: str, tenant: str) -> tuple[int, str] | None:
        """`until` and `body` of this bulk action of this tenant; None if there is none."""
        found: tuple[int, str] | None = await self._read(self._verbs.get, bulk, tenant)
        return found

    async def put(self, row: BulkRow) -> bool:
        """Write a bulk action, with its audit entry if there is one. Deletes old ones. False if
        another process wrote it since it was read; then nothing is written."""
        written: bool = await self._write(self._verbs.put, row)
        return written
