"""The ledger in one SQLite file, owned by one process: nothing to install, nothing lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

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
    Turn,
    Unconfirmed,
    Unwritten,
    WrittenOrNot,
)
from fairlane.ledger.requests import (
    AddedPools,
    CancelRequest,
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
from fairlane.ledger.sqlite import (
    admin,
    api_keys,
    credits,
    gateway,
    job_actions,
    leases,
    queries,
    store_stats,
)
from fairlane.ledger.sqlite.checkpoint import Checkpoints
from fairlane.ledger.sqlite.confirm import confirm
from fairlane.ledger.sqlite.connect import (
    Ownership,
    connect,
    demand_room,
    explained,
    made_ready,
    migrate,
)
from fairlane.ledger.sqlite.read_verbs import SqliteReadVerbs
from fairlane.ledger.sqlite.settle import settle
from fairlane.ledger.sqlite.submit import submit
from fairlane.ledger.sqlite.writer import SqliteTransaction, SqliteWriter
from fairlane.ledger.store_stats import StoreStats
from fairlane.model.job import Job, Progress
from fairlane.model.lease import Lease
from fairlane.model.queue_entry import Start
from fairlane.model.state import Move, State
from fairlane.model.worker import Worker, WorkerState
from fairlane.policy.admission import Quota

T = TypeVar("T")


class SqliteLedger(SqliteReadVerbs):
    shared, alone = False, True

    def __init__(self, path: Path, ownership: Ownership, connection: sqlite3.Connection) -> None:
        self._path, self._ownership, self._connection = path, ownership, connection
        self._closed = False
        self._last_seen = queries.last_seen(connection)
        self._reading = connect(path)
        self._checkpoints = Checkpoints(path)
        try:
            self._writer = SqliteWriter(connection, self._checkpoints.wrote)
        except BaseException:
            self._checkpoints.close()
            self._reading.close()
            raise
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="fairlane-reader")
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

    @classmethod
    async def open(
        cls, path: Path, factory: type[sqlite3.Connection] = sqlite3.Connection
    ) -> SqliteLedger:
        """Own the file, or say who does. Creates and migrates it as needed."""
        path = made_ready(path)
        ownership = Ownership(path)
        try:
            connection = connect(path, factory)
            try:
                migrate(connection)
                return cls(path, ownership, connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            ownership.release()
            raise explained(path, error) from error
        except BaseException:
            ownership.release()
            raise

    def explain(self, error: Exception) -> SetupError | None:
        return explained(self._path, error) if isinstance(error, sqlite3.Error) else None

    async def close(self) -> None:
        self._closed = True
        await self._writer.close()
        self._checkpoints.close()
        self._reader.shutdown()
        self._reading.close()
        self._connection.close()
        self._ownership.release()

    @property
    def last_seen(self) -> int:
        """A time that has certainly been, when this file was opened."""
        return self._last_seen

    @property
    def queued(self) -> int:
        """How many jobs are in line, as the writer counts them."""
        return self._writer.tally.queued

    # --- hot ---------------------------------------------------------------------------------
    async def submit(self, items: Sequence[Submission]) -> WrittenOrNot[SubmitOutcome | Unwritten]:
        written: WrittenOrNot[Any] = await self._writer.admit(submit, items)
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
        return await self._read(admin.stamp), Turn(0, busy=False)

    async def begin_rebuild(self, life: str, over: int) -> bool:
        return await self._one(admin.begin_rebuild, RebuildRequest(life, over))

    async def extend_rebuild(self, life: str, *, done: bool = False) -> bool:  # noqa: ARG002
        """The file belongs to one process: nobody else needs to know."""
        return (await self._read(admin.stamp)).life == life

    async def live(self, page: int) -> AsyncGenerator[list[Job], None]:
        connection = await self._in_reader(connect, self._path)
        try:
            cursor = await self._in_reader(connection.execute, queries.LIVE)
            while found := await self._in_reader(_jobs, cursor, page):
                yield found
        finally:
            await self._in_reader(connection.close)

    async def slots(self, pool: str | None = None) -> list[LiveSlot]:
        return await self._read(queries.slots, pool)

    async def starts(self, since: int, ranks: dict[str, int]) -> list[Start]:
        return await self._read(queries.starts, since, ranks)

    async def outbox(self, limit: int) -> list[tuple[int, list[str]]]:
        return await self._read(_outbox, limit)

    async def clear_outbox(self, seqs: Sequence[int]) -> None:
        await self._writer.write(_clear_outbox, seqs)
        self._writer.forget(seqs)

    async def load(self) -> tuple[int, int]:
        return self._writer.tally.queued, await self._read(queries.running)

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
        return await self._read(lambda connection: credits.balance(connection, account))

    async def set_pools(
        self,
        pools: Sequence[PoolLimit],
        catalog: str,
        file: str,
        over: int,
        change: SettingChange | None = None,
    ) -> Stamp | None:
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
        return await self._one(admin.retire, wanted)

    async def purge(self, tenant: str, dead: Sequence[str], now: int, actor: str) -> int:
        return await self._one(admin.purge, Purge(tenant, dead, now, actor))

    async def _try_to_write(self) -> None:
        await self._in_reader(demand_room, self._path)
        await self._one(store_stats.try_to_write, None)

    async def check(self) -> Counts:
        return await self._read(queries.check)

    # --- threads -----------------------------------------------------------------------------
    async def _one(
        self, verb: Callable[[SqliteTransaction, Sequence[T]], list[Out]], item: T
    ) -> Out:
        return (await self._writer.write(verb, [item])).outcomes[0]

    async def _read(self, query: Callable[..., T], *args: object) -> T:
        return await self._in_reader(query, self._reading, *args)

    async def _in_reader(self, function: Callable[..., T], *args: object) -> T:
        if self._closed:
            raise SetupError("the ledger is closed")
        return await asyncio.get_running_loop().run_in_executor(self._reader, function, *args)


Out = TypeVar("Out")


def _jobs(cursor: sqlite3.Cursor, page: int) -> list[Job]:
    return [rows.job(row) for row in cursor.fetchmany(page)]


def _outbox(connection: sqlite3.Connection, limit: int) -> list[tuple[int, list[str]]]:
    found = connection.execute("SELECT seq, jobs FROM outbox ORDER BY seq LIMIT ?", (limit,))
    return [(seq, rows.loads(jobs)) for seq, jobs in found]


def _clear_outbox(tx: SqliteTransaction, items: Sequence[int]) -> list[None]:
    tx.executemany("DELETE FROM outbox WHERE seq = ?", [(item,) for item in items])
    return [None] * len(items)
