"""Idempotency keys: a key belongs to the first submit that inserts it, until it expires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.errors import FairlaneError, KeyReused
from fairlane.ledger.messages import Replayed, Submission
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.transaction import PostgresTransaction

FIND = """
SELECT v.scope, v.key, hash, job, status
FROM unnest($1::text[], $2::text[], $3::bigint[]) v (scope, key, gone)
JOIN idempotency i ON i.scope = v.scope AND i.key = v.key AND i.at > v.gone
"""
USES = table("scope text, key text, hash text, job text, at bigint")
TAKE = Statement(f"""
INSERT INTO idempotency (scope, key, hash, job, at) SELECT * FROM {USES}
ON CONFLICT (scope, key) DO UPDATE SET hash = excluded.hash, job = excluded.job, at = excluded.at,
    status = NULL WHERE idempotency.at <= excluded.at - :keep
RETURNING job
""")


class IdempotencyUse(NamedTuple):
    """The request a key was used for, and the outcome of its job."""

    hash: str
    job: str
    status: str | None


class IdempotencyKeys:
    """The keys of one batch: those in the ledger, and those the batch itself uses."""

    def __init__(self, tx: PostgresTransaction) -> None:
        self._tx = tx
        self._used: dict[tuple[str, str], IdempotencyUse] = {}
        self._mine: list[Submission] = []
        self._lost: set[tuple[str, str]] = set()

    @classmethod
    async def of(cls, tx: PostgresTransaction, items: Sequence[Submission]) -> IdempotencyKeys:
        keys = cls(tx)
        await keys._find([item for item in items if item.idempotency is not None])
        return keys

    def earlier(self, item: Submission) -> Replayed | FairlaneError | None:
        """The answer to an item whose key is already known."""
        if item.idempotency is None:
            return None
        scope, key, digest = item.idempotency
        use = self._used.get((scope, key))
        if use is None:
            return None
        return Replayed(use.job, use.status) if use.hash == digest else KeyReused()

    def use(self, item: Submission) -> None:
        if item.idempotency is not None:
            scope, key, digest = item.idempotency
            self._used[scope, key] = IdempotencyUse(digest, item.id, None)
            self._mine.append(item)

    async def take(self) -> bool:
        """Insert the keys in use. True if a concurrent transaction inserted one of them first."""
        taken = set()
        for keep in {item.keep_keys for item in self._mine}:
            those = [item for item in self._mine if item.keep_keys == keep]
            taken.update(await self._take(those, keep))
        lost = [item for item in self._mine if item.id not in taken]
        self._lost = {item.idempotency[:2] for item in lost if item.idempotency is not None}
        for each in self._lost:
            del self._used[each]
        await self._find(lost)
        return bool(lost)

    def elsewhere(self, item: Submission) -> Replayed | FairlaneError | None:
        """The answer to an item whose key a concurrent transaction has taken."""
        if item.idempotency is None or item.idempotency[:2] not in self._lost:
            return None
        return self.earlier(item)

    async def _take(self, items: Sequence[Submission], keep: int) -> list[str]:
        uses = sorted(
            (*(item.idempotency or ()), item.id, item.common.created_at) for item in items
        )
        scopes, keys, hashes, jobs, times = zip(*uses, strict=True)
        taken = TAKE(scope=scopes, key=keys, hash=hashes, job=jobs, at=times, keep=keep)
        return [row[0] for row in await self._tx.fetch(*taken)]

    async def _find(self, items: Sequence[Submission]) -> None:
        wanted = {
            item.idempotency[:2]: item.common.created_at - item.keep_keys
            for item in items
            if item.idempotency is not None
        }
        if wanted:
            scopes, names = zip(*wanted, strict=True)
            for scope, key, *use in await self._tx.fetch(FIND, scopes, names, wanted.values()):
                self._used[scope, key] = IdempotencyUse(*use)
