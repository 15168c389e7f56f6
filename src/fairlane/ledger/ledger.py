"""The ledger interface: the durable system of record for jobs, leases, credits and settings.

This protocol is what every ledger implements. Each docstring states the whole guarantee. Times are
microseconds since 1970."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Container, Sequence
from typing import Protocol

from fairlane.errors import FairlaneError, SetupError
from fairlane.ledger.api_keys import ApiKeys
from fairlane.ledger.bulk_actions import BulkRecords
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
from fairlane.ledger.statement import CreditStatement
from fairlane.ledger.store_stats import StoreStats
from fairlane.ledger.webhooks import Webhooks
from fairlane.model.attempt import Attempt
from fairlane.model.event import Event
from fairlane.model.job import Job, Json, Progress
from fairlane.model.lease import Lease
from fairlane.model.queue_entry import Start
from fairlane.model.state import Move, State
from fairlane.model.worker import Worker, WorkerState
from fairlane.policy.quotas import Quota


class Ledger(Protocol):
    shared: bool
    """Whether other processes may write to this ledger, too."""

    alone: bool
    """Whether this process is certainly the only one that uses this ledger."""

    keys: ApiKeys

    @property
    def known_tiers(self) -> KnownTiers: ...

    @property
    def bulks(self) -> BulkRecords: ...

    @property
    def webhooks(self) -> Webhooks: ...

    @property
    def vitals(self) -> StoreStats: ...

    # --- hot ---------------------------------------------------------------------------------
    async def submit(self, items: Sequence[Submission]) -> WrittenOrNot[SubmitOutcome | Unwritten]:
        """Write jobs. An accepted job is durable, is written once, and is within every quota, also
        under concurrent submits. A known idempotency key is answered before any quota is
        checked."""

    async def confirm(
        self, items: Sequence[Confirmation]
    ) -> WrittenOrNot[Lease | Unconfirmed | Unwritten]:
        """Turn proposals of the index into leases. A lease is granted only if the job is queued at
        that rev and ready, the epoch is current, and every slot is free and within its limit. The
        same token again gets the same lease."""

    async def settle(
        self, items: Sequence[Settlement]
    ) -> WrittenOrNot[Settled | Stale | Unwritten]:
        """End attempts. Result, next state, slots and events are written together or not at all,
        and only while the lease's token holds."""

    def published(self, receipts: Sequence[int]) -> None:
        """The index has applied these outbox rows; the ledger may delete them."""

    # --- leases ------------------------------------------------------------------------------
    async def renew(self, tokens: Sequence[tuple[str, str]], until: int, now: int) -> Renewal:
        """Extend the lease of every (job, token) that still holds to `until`. The result names the
        leases that were lost or cancelled."""

    async def holding(self, leases: Sequence[tuple[str, str]]) -> frozenset[str]:
        """The tokens of those (job, token) pairs whose lease has not ended: not settled, not
        cancelled, not taken back."""

    async def progress(self, job: str, token: str, progress: Progress) -> State | None:
        """Store the progress and return None if the token holds; otherwise return the job's
        state."""

    async def move_start(self, job: str, token: str, at: int) -> Lease | Stale:
        """Move the start of a running attempt to `at`, and its deadline with it, if the token
        holds. An earlier time than the present start changes nothing."""

    async def lease(self, job: str, token: str) -> Lease | Stale:
        """The lease as it was handed out, for a caller that only knows its job and token."""

    async def expired(self, now: int, reached: int, limit: int) -> list[Lease]:
        """Leases past their end or their deadline, if their end is not after `reached`: the time up
        to which the caller has been in touch with the ledger without a gap."""

    async def prolong(self, now: int) -> None:
        """Extend every lease after an outage in which no process could reach the ledger. Each lease
        lasts from now on as long as after a heartbeat, up to its deadline. A lease whose deadline
        has passed is extended once, for a result that is on its way."""

    async def free_slots(self, now: int, limit: int) -> list[str]:
        """Free slots that were kept beyond their lease and whose time is over, and eventually also
        slots that no job holds. Returns the tokens that held them."""

    # --- moves from outside ------------------------------------------------------------------
    async def cancel(
        self, request: Request, strict: Container[str]
    ) -> WrittenOrNot[list[Ended] | FairlaneError]:
        """Cancel a job at once and for good, with all cells of a fan-out. The slots of a running
        call stay taken until its deadline if its service is strict, otherwise until its lease
        ends."""

    async def reopen(
        self, request: Request, move: Move, quota: Quota | None
    ) -> WrittenOrNot[Reopened | FairlaneError]:
        """Resume or replay a job, or retry the failed cells of a fan-out (`Move.REOPEN`): exactly
        once for one failure, however often and by however many callers it is requested. A parent
        that had ended runs again."""

    async def stop_cells(
        self, parent: str, now: int, strict: Container[str]
    ) -> WrittenOrNot[list[Ended]]:
        """End the living cells of this fan-out, and with them the fan-out, if it is marked to be
        stopped; otherwise do nothing. Slots of running calls stay taken as after a cancel."""

    async def stopping(self) -> list[str]:
        """The fan-outs that are marked to be stopped because a cell has failed."""

    async def skip(self, request: Request, price: int) -> WrittenOrNot[Skipped | FairlaneError]:
        """Charge the price and move the job to the front of the queue, together or not at all, once
        in a job's life."""

    async def promote(
        self, levels: Sequence[tuple[str, str]], order: Sequence[str], now: int
    ) -> list[str | None]:
        """Record (job, tier) promotions that the owners of queued jobs are told about. Returns each
        job's old level, or None if that was at least as good. `order` names the tiers, best
        first."""

    async def give_up(self, now: int, limit: int) -> WrittenOrNot[list[Job]]:
        """Fail queued jobs that are past their longest wait; they can be resumed."""

    async def return_attempts(self, jobs: Sequence[tuple[str, int, int]]) -> None:
        """Give queued jobs their last attempt back, because their service failed and not the job.
        Each item is (job, step and attempts it was seen with); a job that has another step or
        number by now is left alone."""

    async def change_lanes(self, jobs: Sequence[tuple[str, int, str]]) -> None:
        """Give queued jobs another lane and raise their rev. Each item is (job, rev it was seen
        with, lane); a job that has another rev by now is left alone."""

    async def revoke(self, held: Sequence[tuple[str, int, str]]) -> WrittenOrNot[bool]:
        """Withdraw (job, rev, token) proposals that were not confirmed in time. True if the job
        runs under that token. Otherwise its rev is raised, so that a late confirm fails."""

    # --- rebuild -----------------------------------------------------------------------------
    async def turn(self) -> tuple[Stamp, Turn]:
        """The stamp that confirmations must match, and whether a process is rebuilding the
        index."""

    async def begin_rebuild(self, life: str, over: int) -> bool:
        """Begin a rebuild: from now on only claims under this generation (`life`) of the index are
        confirmed. False if the turn's number is no longer `over`."""

    async def extend_rebuild(self, life: str, *, done: bool = False) -> bool:
        """Report that the rebuilding process is alive, or is done. False if another generation of
        the index has begun since."""

    def live(self, page: int) -> AsyncGenerator[list[Job], None]:
        """All live jobs that can be in the index, page by page, in one snapshot."""

    async def slots(self, pool: str | None = None) -> list[LiveSlot]: ...

    async def starts(self, since: int, ranks: dict[str, int]) -> list[Start]:
        """The last start of each user in each service and tier since then."""

    async def outbox(self, limit: int) -> list[tuple[int, list[str]]]:
        """Outbox rows that a crash left behind, as (seq, jobs)."""

    async def clear_outbox(self, seqs: Sequence[int]) -> None: ...

    # --- reads -------------------------------------------------------------------------------
    async def jobs(self, ids: Sequence[str]) -> dict[str, Job]: ...

    async def fate(self, job: str, owner: str | None) -> str | None:
        """How a job ended whose record is deleted, while its idempotency key is kept. `owner` is a
        tenant or a `tenant/key` (None = any)."""

    async def list_jobs(self, wanted: Filter, after: str | None, limit: int) -> list[Job]:
        """Jobs, newest first, with ids below the cursor `after`. Raises TookTooLong after five
        seconds."""

    async def next_to_end(self, owner: Owner) -> Job | None:
        """The live job of this owner that probably ends first: the running job that started first,
        otherwise the oldest queued job. Looks at the owner's latest 1,000 jobs."""

    async def payload(self, job: str) -> tuple[Json, dict[str, Json]]:
        """The job's input, and the outputs of its finished steps."""

    async def attempts(self, job: str) -> list[Attempt]: ...

    async def events(self, job: str, after: int) -> list[Event]:
        """The job's events, numbered after + 1, after + 2, … without a gap."""

    async def count(self, state: State, tenant: str | None = None) -> int:
        """How many jobs of this tenant (None = all) are in this state, without the cells of
        fan-outs. Raises TookTooLong."""

    async def load(self) -> tuple[int, int]:
        """How many jobs are queued and how many run. Cheap."""

    async def cell_counts(self, parent: str) -> dict[State, int]:
        """How many cells of this fan-out are in each state."""

    async def running_in(self) -> Counter[tuple[str, str | None]]:
        """How many jobs of each service run in each region. Reads all running jobs."""

    async def running_jobs(self, wanted: Filter, service: str | None, limit: int) -> list[Job]:
        """Running jobs of this tenant, user and key (None = any), the longest-running first: all of
        a service, or without one those that `list_jobs` lists, which are no cells of fan-outs.
        Reads all running jobs."""

    async def skip_costs(self, jobs: Sequence[str]) -> dict[str, int]:
        """The credits that were paid for the skips of these jobs, and not refunded."""

    async def finished_since(self, since: int) -> dict[State, int]:
        """How many jobs have ended since then, by state."""

    # --- users, money, settings, workers ---------------------------------------------------------
    async def tier_of(self, tenant: str, user: str) -> str | None: ...

    async def set_tier(self, tenant: str, user: str, tier: str, now: int, actor: str) -> None: ...

    async def set_quota(
        self,
        tenant: str,
        user: str,
        pending: int | None,
        per_hour: int | None,
        now: int,
        actor: str,
    ) -> None:
        """Set this user's own limits, which replace those of the tier (None = the tier's)."""

    async def count_users(
        self, tenant: str, key: str, users: Sequence[str], limit: int, now: int
    ) -> CountedUsers:
        """Count these users of an API key for an hour from their first count. Exactly `limit` users
        count at a time, also under concurrent calls. Users that count already stay; new users are
        counted in the given order while there is room."""

    async def forget_key_users(self, now: int) -> None:
        """Delete the rows of users that no longer count."""

    async def audit(self, limit: int) -> list[AuditedChange]:
        """The latest administrative changes, newest first."""

    async def credit(
        self, tenant: str, user: str, amount: int, operation: str, now: int, note: str, actor: str
    ) -> int:
        """Book an amount and return the balance after it. Idempotent by `operation`: the same again
        changes nothing, and another amount under the same name is a Conflict."""

    async def balance(self, tenant: str, user: str) -> int: ...

    async def statement(
        self, tenant: str, user: str, since: int, before: int, limit: int
    ) -> CreditStatement:
        """The balance, and the entries booked from `since` on and before `before`, newest first,
        with the balance after each. Entries are never changed, and each is booked later than all
        others of its user, so the pages of a statement have no gap and no repetition. Raises
        TookTooLong after five seconds."""

    async def set_pools(
        self,
        pools: Sequence[PoolLimit],
        catalog: str,
        file: str,
        over: int,
        change: SettingChange | None = None,
    ) -> Stamp | Superseded | None:
        """Put this catalog, made from this file, into force: exactly these pools are limited, and
        claims under older settings are refused. Running jobs of a pool that hold no slot in it take
        one, even above the limit. Returns None if the settings in force are not number `over`, and
        Superseded if this change was made before and has been replaced since."""

    async def add_pools(
        self, pools: Sequence[PoolLimit], configured: Sequence[str], over: int
    ) -> None:
        """Limit these pools in addition to the configured ones until the settings change, counted
        as in `set_pools`. Nothing happens if the settings in force are not number `over`. If there
        are many added pools, those without a taken slot are deleted; they can be added again."""

    async def settings(self) -> StoredSettings: ...

    async def put_worker(self, worker: Worker, now: int) -> None: ...

    async def record_heartbeat(self, worker: str, state: WorkerState, now: int) -> Worker | None:
        """Record a worker's heartbeat and return the worker. Its state only moves forward, from
        active to draining to dead, until the worker registers again. None if there is no such
        worker."""

    async def worker(self, worker: str) -> Worker | None: ...

    async def workers(self) -> list[tuple[Worker, int]]:
        """Every worker and the time of its last heartbeat."""

    async def forget_workers(self, before: int) -> int:
        """Delete workers without a heartbeat since then. Returns how many."""

    async def held(self, worker: str | None = None) -> list[Job]:
        """Running jobs that this worker holds (None = any), from all of its claims. Reads all
        running jobs."""

    # --- upkeep ------------------------------------------------------------------------------
    async def retire(
        self, finished_before: int, dead_before: int, keys_before: int, limit: int
    ) -> int:
        """Delete finished jobs, dead letters and idempotency keys older than that, at most `limit`
        of each. Jobs that are live, unpublished or needed by a live parent are kept."""

    async def has_hourly_quotas(self) -> bool:
        """Whether a user has a quota per hour that an administrator has set."""

    async def purge(self, tenant: str, dead: Sequence[str], now: int, actor: str) -> int:
        """Delete those of these jobs that are dead letters of this tenant. Returns how many."""

    async def check(self) -> Counts: ...

    def explain(self, error: Exception) -> SetupError | None:
        """What is wrong with the store itself and how to fix it, if that is the cause of the
        error."""

    async def close(self) -> None: ...
