"""The PostgreSQL ledger: the truth that any number of processes share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Sequence
from time import perf_counter
from typing import Any, TypeVar

import asyncpg

from fairlane.errors import FairlaneError, SetupError
from fairlane.ledger import rows
from fairlane.ledger.api_keys import ApiKeys
from fairlane.ledger.credit_accounts import account_of
from fairlane.ledger.gateway import KnownTiers, Webhooks
from fairlane.ledger.messages import (
    AuditedChange,
    Confirmation,
    Counts,
    Ended,
    LiveSlot,
    PoolLimit,
    Renewal,
    Reopened,
    Request,
    SettingChange,
    Settled,
    Settlement,
    Skipped,
    Stale,
    Stamp,
    StoredSettings,
    Submission,
    SubmitOutcome,
    Superseded,
    Turn,
    Unconfirmed,
    Unwritten,
    WrittenOrNot,
)
from fairlane.ledger.postgres import (
    admin,
    api_keys,
    credits,
    epochs,
    gateway,
    job_actions,
    job_lists,
    leases,
    outbox,
    queries,
    retention,
    store_stats,
)
from fairlane.ledger.postgres.confirm import confirm
from fairlane.ledger.postgres.connect import (
    connect,
    demand_durable,
    demand_schema,
    explained,
    migrate,
)
from fairlane.ledger.postgres.process_lock import ProcessLock
from fairlane.ledger.postgres.read_connection import Connection, snapshot
from fairlane.ledger.postgres.read_verbs import PostgresReadVerbs
from fairlane.ledger.postgres.settle import settle
from fairlane.ledger.postgres.shared_clock import SharedClock
from fairlane.ledger.postgres.silent_connections import WatchedConnections, asking
from fairlane.ledger.postgres.submit import submit
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.postgres.writer import PostgresWriter
from fairlane.ledger.requests import (
    AddedPools,
    CancelRequest,
    Extension,
    Grant,
    LimitsChange,
    ProgressReport,
    Promotion,
    Purge,
    QuotaChange,
    RebuildRequest,
    RenewRequest,
    ReopenRequest,
    Retirement,
    SkipCommand,
    TierChange,
    UnconfirmedProposal,
)
from fairlane.ledger.store_stats import StoreStats
from fairlane.model.job import Job, Progress
from fairlane.model.lease import Lease
from fairlane.model.queue_entry import Start
from fairlane.model.state import Move, State
from fairlane.model.worker import Worker, WorkerState
from fairlane.policy.admission import Quota

T = TypeVar("T")
Out = TypeVar("Out")

CONNECTIONS = 10

CLOSE_WITHIN = 5.0
"""Seconds that a server has to close its connections."""

MAX_LIST_CLEANUPS = 100
"""Transactions that strike finished jobs off the roll of the living in one go, at most."""


class PostgresLedger(PostgresReadVerbs):
    shared = True

    def __init__(self, pool: asyncpg.Pool, presence: ProcessLock) -> None:
        self._pool, self._presence, self._closed = pool, presence, False
        self.alone = presence.alone
        self._writer = PostgresWriter(pool, refusal=lambda: presence.refusal)
        self.keys = ApiKeys(self._one, self._read, api_keys.VERBS)
        self.known_tiers = KnownTiers(self._one, self._read, gateway.TIERS)
        self.webhooks = Webhooks(self._one, self._read, gateway.WEBHOOKS)
        self.vitals = StoreStats(
            self._writer.waits,
            self._read,
            self._try_to_write,
            store_stats.signs,
            store_stats.imbalance,
        )
        self.clock = SharedClock(self._read_clock, self._set_clock)

    @classmethod
    async def open(
        cls, url: str, *, unsafe: bool = False, alone: bool = False, migrating: bool = True
    ) -> PostgresLedger:
        """Migrates the schema as needed, unless told to demand it. `unsafe` accepts a server that
        may lose jobs; `alone` accepts no other process on this database."""
        watched = WatchedConnections()
        pool = await connect(url, most=CONNECTIONS, watched=watched)
        try:
            if not unsafe:
                await demand_durable(pool)
            await (migrate(pool) if migrating else demand_schema(pool))
            return cls(pool, await ProcessLock.taken(url, alone=alone, watched=watched))
        except BaseException:
            pool.terminate()
            raise

    async def started_clock(self) -> SharedClock:
        """The time of all processes on this ledger."""
        await self.clock.start()
        return self.clock

    async def close(self) -> None:
        self._closed = True
        await self.clock.stop()
        await self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_WITHIN):
                await self._pool.close()
        except TimeoutError:  # nobody answers
            self._pool.terminate()
        await self._presence.close()

    def explain(self, error: Exception) -> SetupError | None:
        return explained(error)

    # --- hot ---------------------------------------------------------------------------------
    async def submit(self, items: Sequence[Submission]) -> WrittenOrNot[SubmitOutcome | Unwritten]:
        written: WrittenOrNot[Any] = await self._writer.write(submit, items)
        return written

    async def confirm(
        self, items: Sequence[Confirmation]
    ) -> WrittenOrNot[Lease | Unconfirmed | Unwritten]:
        written: WrittenOrNot[Any] = await self._writer.write(confirm, items)
        return written

    async def settle(
        self, items: Sequence[Settlement]
    ) -> WrittenOrNot[Settled | Stale | Unwritten]:
        written: WrittenOrNot[Any] = await self._writer.write(settle, items)
        return written

    def published(self, receipts: Sequence[int]) -> None:
        self._writer.published(receipts)

    # --- leases ------------------------------------------------------------------------------
    async def renew(self, tokens: Sequence[tuple[str, str]], until: int, now: int) -> Renewal:
        return await self._one(leases.renew, RenewRequest(tokens, until, now))

    async def holding(self, leases: Sequence[tuple[str, str]]) -> frozenset[str]:
        return await self._read(queries.holding, leases)

    async def progress(self, job: str, token: str, progress: Progress) -> State | None:
        return await self._one(leases.progress, ProgressReport(job, token, progress))

    async def lease(self, job: str, token: str) -> Lease | Stale:
        found = (await self.jobs([job])).get(job)
        if found is None or found.token != token:
            return Stale(found.state if found is not None else None)
        return rows.lease(found)

    async def expired(self, now: int, reached: int, limit: int) -> list[Lease]:
        if not await self._read(queries.is_due, now):
            return []
        await self._one(job_lists.look_through_leases, now)
        return [rows.lease(job) for job in await self._read(queries.expired, now, reached, limit)]

    async def prolong(self, now: int) -> None:
        await self._one(leases.prolong, now)

    async def free_slots(self, now: int, limit: int) -> list[str]:
        return await self._one(leases.free_slots, (now, limit))

    # --- moves from outside ------------------------------------------------------------------
    async def cancel(
        self, request: Request, strict: Container[str]
    ) -> WrittenOrNot[list[Ended] | FairlaneError]:
        return await self._writer.write(job_actions.cancel, [CancelRequest(request, strict)])

    async def reopen(
        self, request: Request, move: Move, quota: Quota | None
    ) -> WrittenOrNot[Reopened | FairlaneError]:
        return await self._writer.write(job_actions.reopen, [ReopenRequest(request, move, quota)])

    async def skip(self, request: Request, price: int) -> WrittenOrNot[Skipped | FairlaneError]:
        return await self._writer.write(job_actions.skip, [SkipCommand(request, price)])

    async def promote(
        self, levels: Sequence[tuple[str, str]], order: Sequence[str], now: int
    ) -> list[str | None]:
        ranks = {tier: rank for rank, tier in enumerate(order)}
        items = [Promotion(job, level, ranks, now) for job, level in levels]
        return (await self._writer.write(leases.promote, items)).outcomes

    async def give_up(self, now: int, limit: int) -> WrittenOrNot[list[Job]]:
        return await self._writer.write(leases.give_up, [(now, limit)])

    async def forgive(self, jobs: Sequence[tuple[str, int]]) -> None:
        await self._writer.write(leases.forgive, jobs)

    async def revoke(self, held: Sequence[tuple[str, int, str]]) -> WrittenOrNot[bool]:
        return await self._writer.write(
            leases.revoke, [UnconfirmedProposal(*each) for each in held]
        )

    # --- rebuild -----------------------------------------------------------------------------
    async def turn(self) -> tuple[Stamp, Turn]:
        return await self._read(epochs.turn)

    async def begin_rebuild(self, life: str, over: int) -> bool:
        return await self._one(epochs.begin_rebuild, RebuildRequest(life, over))

    async def extend_rebuild(self, life: str, *, done: bool = False) -> bool:
        return await self._one(epochs.extend_rebuild, Extension(life, done))

    async def live(self, page: int) -> AsyncGenerator[list[Job], None]:
        async with self._pool.acquire() as connection, snapshot(connection):
            await connection.execute(queries.TAKE_TIME)
            with asking(connection):
                cursor = await connection.cursor(queries.LIVE)
            while found := await _next(connection, cursor, page):
                yield [rows.job(tuple(row)) for row in found]

    async def slots(self, pool: str | None = None) -> list[LiveSlot]:
        return await self._read(queries.slots, pool)

    async def starts(self, since: int, ranks: dict[str, int]) -> list[Start]:
        return await self._read(queries.starts, since, ranks)

    async def outbox(self, limit: int) -> list[tuple[int, list[str]]]:
        return await self._read(outbox.rows, limit)

    async def clear_outbox(self, seqs: Sequence[int]) -> None:
        await self._writer.write(outbox.clear, seqs)
        self._writer.forget(seqs)

    # --- users, money, settings, workers -----------------------------------------------------
    async def tier_of(self, tenant: str, user: str) -> str | None:
        return await self._read(queries.tier_of, tenant, user)

    async def set_tier(self, tenant: str, user: str, tier: str, now: int, actor: str) -> None:
        await self._one(admin.set_tier, TierChange(tenant, user, tier, now, actor))

    async def set_quota(
        self,
        tenant: str,
        user: str,
        pending: int | None,
        per_hour: int | None,
        now: int,
        actor: str,
    ) -> None:
        change = QuotaChange(tenant, user, pending, per_hour, now, actor)
        await self._one(admin.set_quota, change)

    async def audit(self, limit: int) -> list[AuditedChange]:
        return await self._read(admin.audit, limit)

    async def credit(
        self, tenant: str, user: str, amount: int, operation: str, now: int, note: str, actor: str
    ) -> int:
        grant = Grant(tenant, user, amount, operation, now, note, actor)
        outcome = await self._one(admin.credit, grant)
        if isinstance(outcome, FairlaneError):
            raise outcome
        return outcome

    async def balance(self, tenant: str, user: str) -> int:
        account = account_of(tenant, user)
        return await self._read(credits.balance, account)

    async def set_pools(
        self,
        pools: Sequence[PoolLimit],
        catalog: str,
        file: str,
        over: int,
        change: SettingChange | None = None,
    ) -> Stamp | Superseded | None:
        wanted = LimitsChange(pools, catalog, file, over, change)
        return await self._one(admin.set_pools, wanted)

    async def add_pools(
        self, pools: Sequence[PoolLimit], configured: Sequence[str], over: int
    ) -> None:
        await self._one(admin.add_pools, AddedPools(pools, configured, over))

    async def settings(self) -> StoredSettings:
        return await self._read(admin.settings)

    async def put_worker(self, worker: Worker, now: int) -> None:
        await self._one(admin.put_worker, (worker, now))

    async def hear(self, worker: str, state: WorkerState, now: int) -> Worker | None:
        return await self._one(admin.hear, (worker, state, now))

    async def worker(self, worker: str) -> Worker | None:
        return await self._read(admin.worker, worker)

    async def workers(self) -> list[tuple[Worker, int]]:
        return await self._read(admin.workers)

    async def forget_workers(self, before: int) -> int:
        return await self._one(admin.forget_workers, before)

    async def held(self, worker: str | None = None) -> list[Job]:
        return await self._read(queries.held, worker)

    # --- upkeep ------------------------------------------------------------------------------
    async def retire(
        self, finished_before: int, dead_before: int, keys_before: int, limit: int
    ) -> int:
        wanted = Retirement(finished_before, dead_before, keys_before, limit)
        for _ in range(MAX_LIST_CLEANUPS):
            if not await self._one(job_lists.look_through_live, limit):
                break
        return await self._one(retention.retire, wanted)

    async def purge(self, tenant: str, dead: Sequence[str], now: int, actor: str) -> int:
        return await self._one(retention.purge, Purge(tenant, dead, now, actor))

    async def _try_to_write(self) -> None:
        """Changing a row needs no room; a disk that was full a moment ago is full."""
        full = self._writer.full_lately()
        if full is not None:
            raise full
        await self._one(store_stats.try_to_write, None)

    async def check(self) -> Counts:
        return await self._read(queries.check)

    async def _read_clock(self) -> tuple[int, str]:
        return await self._read(epochs.read_clock)

    async def _set_clock(self, old: str, new: str) -> bool:
        return await self._one(epochs.set_clock, (old, new))

    # --- connections -------------------------------------------------------------------------
    async def _one(
        self, verb: Callable[[PostgresTransaction, Sequence[T]], Awaitable[list[Out]]], item: T
    ) -> Out:
        return (await self._writer.write(verb, [item])).outcomes[0]

    async def _read(self, query: Callable[..., Awaitable[T]], *args: object) -> T:
        if self._closed:
            raise SetupError("the ledger is closed")
        if (refusal := self._presence.refusal) is not None:
            raise refusal
        began = perf_counter()
        async with self._pool.acquire() as connection:
            self._writer.waits.told(perf_counter() - began)
            return await query(connection, *args)


async def _next(
    connection: Connection, cursor: asyncpg.cursor.Cursor, page: int
) -> list[asyncpg.Record]:
    with asking(connection):
        return await cursor.fetch(page)
