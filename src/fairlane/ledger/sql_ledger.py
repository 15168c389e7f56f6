"""The SQL ledger's façade: forwards each verb to the function of that name in the store's
modules.

Both stores have the same modules. Reads run through `_read`, writes through the writer. A store
overrides only what it does differently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeVar

from fairlane.errors import FairlaneError
from fairlane.ledger import rows
from fairlane.ledger.api_keys import ApiKeys
from fairlane.ledger.bulk_actions import BulkRecords
from fairlane.ledger.credit_account_names import account_of
from fairlane.ledger.known_tiers import KnownTiers
from fairlane.ledger.messages import (
    AuditedChange,
    Confirmation,
    CountedUsers,
    Counts,
    Ended,
    Filter,
    LiveSlot,
    Owner,
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
from fairlane.ledger.requests import (
    AddedPools,
    CancelRequest,
    Extension,
    Grant,
    KeyUsers,
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
    StartMove,
    StopRequest,
    TierChange,
    UnconfirmedProposal,
)
from fairlane.ledger.statement import CreditStatement, StatementQuery
from fairlane.ledger.store_stats import StoreStats, StoreWaits
from fairlane.ledger.webhooks import Webhooks
from fairlane.model.attempt import Attempt
from fairlane.model.event import Event
from fairlane.model.job import Job, Json, Progress
from fairlane.model.lease import Lease
from fairlane.model.queue_entry import Start
from fairlane.model.state import Move, State
from fairlane.model.worker import Worker, WorkerState
from fairlane.policy.quotas import Quota

T = TypeVar("T")


class Writer(Protocol):
    waits: StoreWaits

    def write(
        self, verb: Callable[..., Any], items: Sequence[Any]
    ) -> Awaitable[WrittenOrNot[Any]]: ...

    def published(self, receipts: Iterable[int]) -> None: ...

    def forget(self, receipts: Iterable[int]) -> None: ...


class SqlReader(ABC):
    """The queries that need no ownership of the ledger."""

    _queries: ModuleType

    @abstractmethod
    async def _read(self, query: Callable[..., T], *args: object) -> T:
        """The query's result."""

    async def jobs(self, ids: Sequence[str]) -> dict[str, Job]:
        return await self._read(self._queries.jobs, ids)

    async def fate(self, job: str, owner: str | None) -> str | None:
        return await self._read(self._queries.fate, job, owner)

    async def list_jobs(self, wanted: Filter, after: str | None, limit: int) -> list[Job]:
        return await self._read(self._queries.list_jobs, wanted, after, limit)

    async def next_to_end(self, owner: Owner) -> Job | None:
        return await self._read(self._queries.next_to_end, owner)

    async def payload(self, job: str) -> tuple[Json, dict[str, Json]]:
        return await self._read(self._queries.payload, job)

    async def attempts(self, job: str) -> list[Attempt]:
        return await self._read(self._queries.attempts, job)

    async def events(self, job: str, after: int) -> list[Event]:
        return await self._read(self._queries.events, job, after)

    async def count(self, state: State, tenant: str | None = None) -> int:
        return await self._read(self._queries.count, state, tenant)

    async def cell_counts(self, parent: str) -> dict[State, int]:
        return await self._read(self._queries.cell_counts, parent)

    async def running_in(self) -> Counter[tuple[str, str | None]]:
        return await self._read(self._queries.running_in)

    async def running_jobs(self, wanted: Filter, service: str | None, limit: int) -> list[Job]:
        return await self._read(self._queries.running_jobs, wanted, service, limit)

    async def finished_since(self, since: int) -> dict[State, int]:
        return await self._read(self._queries.finished_since, since)


class SqlLedger(SqlReader):
    _writer: Writer
    _admin: ModuleType
    _api_keys: ModuleType
    _bulk_actions: ModuleType
    _confirm: ModuleType
    _credits: ModuleType
    _end_jobs: ModuleType
    _epochs: ModuleType
    _job_actions: ModuleType
    _key_users: ModuleType
    _known_tiers: ModuleType
    _leases: ModuleType
    _outbox: ModuleType
    _retention: ModuleType
    _settle: ModuleType
    _store_stats: ModuleType
    _submit: ModuleType
    _webhooks: ModuleType

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.keys = ApiKeys(self._one, self._read, self._api_keys.VERBS)
        self.known_tiers = KnownTiers(self._one, self._read, self._known_tiers.VERBS)
        self.bulks = BulkRecords(self._one, self._read, self._bulk_actions.VERBS)
        self.webhooks = Webhooks(self._one, self._read, self._webhooks.VERBS)
        self.vitals = StoreStats(
            writer.waits,
            self._read,
            self._try_to_write,
            self._store_stats.VERBS,
        )

    @abstractmethod
    async def _try_to_write(self) -> None:
        """Raises the error that keeps the store from writing."""

    async def _one(
        self, verb: Callable[..., list[T]] | Callable[..., Awaitable[list[T]]], item: object
    ) -> T:
        outcomes: list[T] = (await self._writer.write(verb, [item])).outcomes
        return outcomes[0]

    # --- hot ---------------------------------------------------------------------------------
    async def submit(self, items: Sequence[Submission]) -> WrittenOrNot[SubmitOutcome | Unwritten]:
        return await self._writer.write(self._submit.submit, items)

    async def confirm(
        self, items: Sequence[Confirmation]
    ) -> WrittenOrNot[Lease | Unconfirmed | Unwritten]:
        return await self._writer.write(self._confirm.confirm, items)

    async def settle(
        self, items: Sequence[Settlement]
    ) -> WrittenOrNot[Settled | Stale | Unwritten]:
        return await self._writer.write(self._settle.settle, items)

    def published(self, receipts: Sequence[int]) -> None:
        self._writer.published(receipts)

    # --- leases ------------------------------------------------------------------------------
    async def renew(self, tokens: Sequence[tuple[str, str]], until: int, now: int) -> Renewal:
        return await self._one(self._leases.renew, RenewRequest(tokens, until, now))

    async def holding(self, leases: Sequence[tuple[str, str]]) -> frozenset[str]:
        return await self._read(self._queries.holding, leases)

    async def progress(self, job: str, token: str, progress: Progress) -> State | None:
        return await self._one(self._leases.progress, ProgressReport(job, token, progress))

    async def move_start(self, job: str, token: str, at: int) -> Lease | Stale:
        await self._one(self._leases.move_start, StartMove(job, token, at))
        return await self.lease(job, token)

    async def lease(self, job: str, token: str) -> Lease | Stale:
        found = (await self.jobs([job])).get(job)
        if found is None or found.token != token:
            return Stale(found.state if found is not None else None)
        return rows.lease(found)

    async def expired(self, now: int, reached: int, limit: int) -> list[Lease]:
        found: list[Job] = await self._read(self._queries.expired, now, reached, limit)
        return [rows.lease(job) for job in found]

    async def prolong(self, now: int) -> None:
        await self._one(self._leases.prolong, now)

    async def free_slots(self, now: int, limit: int) -> list[str]:
        return await self._one(self._leases.free_slots, (now, limit))

    # --- moves from outside ------------------------------------------------------------------
    async def cancel(
        self, request: Request, strict: Container[str]
    ) -> WrittenOrNot[list[Ended] | FairlaneError]:
        return await self._writer.write(self._job_actions.cancel, [CancelRequest(request, strict)])

    async def stop_cells(
        self, parent: str, now: int, strict: Container[str]
    ) -> WrittenOrNot[list[Ended]]:
        wanted = StopRequest(parent, now, strict)
        return await self._writer.write(self._end_jobs.stop_cells, [wanted])

    async def stopping(self) -> list[str]:
        return await self._read(self._queries.stopping)

    async def reopen(
        self, request: Request, move: Move, quota: Quota | None
    ) -> WrittenOrNot[Reopened | FairlaneError]:
        wanted = ReopenRequest(request, move, quota)
        return await self._writer.write(self._job_actions.reopen, [wanted])

    async def skip(self, request: Request, price: int) -> WrittenOrNot[Skipped | FairlaneError]:
        return await self._writer.write(self._job_actions.skip, [SkipCommand(request, price)])

    async def promote(
        self, levels: Sequence[tuple[str, str]], order: Sequence[str], now: int
    ) -> list[str | None]:
        ranks = {tier: rank for rank, tier in enumerate(order)}
        items = [Promotion(job, level, ranks, now) for job, level in levels]
        return (await self._writer.write(self._leases.promote, items)).outcomes

    async def give_up(self, now: int, limit: int) -> WrittenOrNot[list[Job]]:
        return await self._writer.write(self._leases.give_up, [(now, limit)])

    async def return_attempts(self, jobs: Sequence[tuple[str, int, int]]) -> None:
        await self._writer.write(self._leases.return_attempts, jobs)

    async def change_lanes(self, jobs: Sequence[tuple[str, int, str]]) -> None:
        await self._writer.write(self._leases.change_lanes, jobs)

    async def revoke(self, held: Sequence[tuple[str, int, str]]) -> WrittenOrNot[bool]:
        items = [UnconfirmedProposal(*each) for each in held]
        return await self._writer.write(self._leases.revoke, items)

    # --- rebuild -----------------------------------------------------------------------------
    async def turn(self) -> tuple[Stamp, Turn]:
        return await self._read(self._epochs.turn)

    async def begin_rebuild(self, life: str, over: int) -> bool:
        return await self._one(self._epochs.begin_rebuild, RebuildRequest(life, over))

    async def extend_rebuild(self, life: str, *, done: bool = False) -> bool:
        return await self._one(self._epochs.extend_rebuild, Extension(life, done))

    async def slots(self, pool: str | None = None) -> list[LiveSlot]:
        return await self._read(self._queries.slots, pool)

    async def starts(self, since: int, ranks: dict[str, int]) -> list[Start]:
        return await self._read(self._queries.starts, since, ranks)

    async def outbox(self, limit: int) -> list[tuple[int, list[str]]]:
        return await self._read(self._outbox.rows, limit)

    async def clear_outbox(self, seqs: Sequence[int]) -> None:
        await self._writer.write(self._outbox.clear, seqs)
        self._writer.forget(seqs)

    # --- users, money, settings, workers -----------------------------------------------------
    async def tier_of(self, tenant: str, user: str) -> str | None:
        return await self._read(self._queries.tier_of, tenant, user)

    async def set_tier(self, tenant: str, user: str, tier: str, now: int, actor: str) -> None:
        await self._one(self._admin.set_tier, TierChange(tenant, user, tier, now, actor))

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
        await self._one(self._admin.set_quota, change)

    async def count_users(
        self, tenant: str, key: str, users: Sequence[str], limit: int, now: int
    ) -> CountedUsers:
        wanted = KeyUsers(tenant, key, users, limit, now)
        return await self._one(self._key_users.count_users, wanted)

    async def forget_key_users(self, now: int) -> None:
        await self._one(self._key_users.forget, now)

    async def audit(self, limit: int) -> list[AuditedChange]:
        return await self._read(self._admin.audit, limit)

    async def credit(
        self, tenant: str, user: str, amount: int, operation: str, now: int, note: str, actor: str
    ) -> int:
        grant = Grant(tenant, user, amount, operation, now, note, actor)
        outcome: int | FairlaneError = await self._one(self._admin.credit, grant)
        if isinstance(outcome, FairlaneError):
            raise outcome
        return outcome

    async def balance(self, tenant: str, user: str) -> int:
        return await self._read(self._credits.balance, account_of(tenant, user))

    async def skip_costs(self, jobs: Sequence[str]) -> dict[str, int]:
        return await self._read(self._credits.skip_costs, jobs)

    async def statement(
        self, tenant: str, user: str, since: int, before: int, limit: int
    ) -> CreditStatement:
        wanted = StatementQuery(account_of(tenant, user), since, before, limit)
        return await self._read(self._credits.statement, wanted)

    async def set_pools(
        self,
        pools: Sequence[PoolLimit],
        catalog: str,
        file: str,
        over: int,
        change: SettingChange | None = None,
    ) -> Stamp | Superseded | None:
        wanted = LimitsChange(pools, catalog, file, over, change)
        return await self._one(self._admin.set_pools, wanted)

    async def add_pools(
        self, pools: Sequence[PoolLimit], configured: Sequence[str], over: int
    ) -> None:
        await self._one(self._admin.add_pools, AddedPools(pools, configured, over))

    async def settings(self) -> StoredSettings:
        return await self._read(self._admin.settings)

    async def put_worker(self, worker: Worker, now: int) -> None:
        await self._one(self._admin.put_worker, (worker, now))

    async def record_heartbeat(self, worker: str, state: WorkerState, now: int) -> Worker | None:
        return await self._one(self._admin.record_heartbeat, (worker, state, now))

    async def worker(self, worker: str) -> Worker | None:
        return await self._read(self._admin.worker, worker)

    async def workers(self) -> list[tuple[Worker, int]]:
        return await self._read(self._admin.workers)

    async def forget_workers(self, before: int) -> int:
        return await self._one(self._admin.forget_workers, before)

    async def held(self, worker: str | None = None) -> list[Job]:
        return await self._read(self._queries.held, worker)

    # --- upkeep ------------------------------------------------------------------------------
    async def retire(
        self, finished_before: int, dead_before: int, keys_before: int, limit: int
    ) -> int:
        wanted = Retirement(finished_before, dead_before, keys_before, limit)
        return await self._one(self._retention.retire, wanted)

    async def has_hourly_quotas(self) -> bool:
        return await self._read(self._queries.has_hourly_quotas)

    async def purge(self, tenant: str, dead: Sequence[str], now: int, actor: str) -> int:
        return await self._one(self._retention.purge, Purge(tenant, dead, now, actor))

    async def check(self) -> Counts:
        return await self._read(self._queries.check)
