"""The ledger interface: what every ledger can do. Each docstring is the whole guarantee."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Container, Sequence
from typing import Protocol

from fairlane.errors import FairlaneError, SetupError
from fairlane.ledger.api_keys import ApiKeys
from fairlane.ledger.known_tiers import KnownTiers
from fairlane.ledger.messages import (
    AuditedChange,
    Confirmation,
    Counts,
    Ended,
    Filter,
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
    """Whether other processes may write to it, too."""

    alone: bool
    """Whether this process is certainly the only one that works on it."""

    keys: ApiKeys

    @property
    def known_tiers(self) -> KnownTiers: ...

    @property
    def webhooks(self) -> Webhooks: ...

    @property
    def vitals(self) -> StoreStats: ...

    # --- hot ---------------------------------------------------------------------------------
    async def submit(self, items: Sequence[Submission]) -> WrittenOrNot[SubmitOutcome | Unwritten]:
        """Accepted ⇒ durable, once, within every quota, also under concurrent submits. A known
        idempotency key is answered before any quota."""

    async def confirm(
        self, items: Sequence[Confirmation]
    ) -> WrittenOrNot[Lease | Unconfirmed | Unwritten]:
        """A lease only if the job is queued at that rev and ready, the epoch is current, and every
        slot is free and within its limit. The same token again gets the same lease."""

    async def settle(
        self, items: Sequence[Settlement]
    ) -> WrittenOrNot[Settled | Stale | Unwritten]:
        """Result, next state, slots, events: all or nothing, and only while the token holds."""

    def published(self, receipts: Sequence[int]) -> None:
        """The index knows what these rows were about; they may go."""

    # --- leases ------------------------------------------------------------------------------
    async def renew(self, tokens: Sequence[tuple[str, str]], until: int, now: int) -> Renewal:
        """Every (job, token) that still holds lasts until then; the others are named."""

    async def holding(self, leases: Sequence[tuple[str, str]]) -> frozenset[str]:
        """The tokens of those (job, token) that nobody has ended: not settled, not cancelled, not
        taken back."""

    async def progress(self, job: str, token: str, progress: Progress) -> State | None:
        """Kept if the token holds (None); otherwise the state the job is in."""

    async def lease(self, job: str, token: str) -> Lease | Stale:
        """The lease as it was handed out, for who only has its name."""

    async def expired(self, now: int, reached: int, limit: int) -> list[Lease]:
        """Leases past their end or their deadline, if they last no longer than `reached`: how long
        the asker has been in touch with the ledger without a gap."""

    async def prolong(self, now: int) -> None:
        """Nobody could reach the ledger before now: every lease lasts from now on as long as after
        a heartbeat, up to its deadline. One whose deadline has passed lasts that long once, for a
        result that is on its way."""

    async def free_slots(self, now: int, limit: int) -> list[str]:
        """Slots kept beyond their lease whose time is over are free, and in the end also such as no
        job holds; the tokens that had them."""

    # --- moves from outside ------------------------------------------------------------------
    async def cancel(
        self, request: Request, strict: Container[str]
    ) -> WrittenOrNot[list[Ended] | FairlaneError]:
        """Cancelled at once and for good, with all cells of a fan-out. The slots of a running call
        stay until its deadline where its service is strict, else until its lease ends."""

    async def reopen(
        self, request: Request, move: Move, quota: Quota | None
    ) -> WrittenOrNot[Reopened | FairlaneError]:
        """Resume or replay: exactly once for one failure, whoever asks and how often."""

    async def skip(self, request: Request, price: int) -> WrittenOrNot[Skipped | FairlaneError]:
        """Charged and moved to the very front, together or not at all, once in a job's life."""

    async def promote(
        self, levels: Sequence[tuple[str, str]], order: Sequence[str], now: int
    ) -> list[str | None]:
        """Announce (job, tier) to owners of queued jobs: the old level, or None where it was as
        good. `order` names the tiers, best first."""

    async def give_up(self, now: int, limit: int) -> WrittenOrNot[list[Job]]:
        """Queued jobs past their longest wait have failed, resumable."""

    async def forgive(self, jobs: Sequence[tuple[str, int]]) -> None:
        """(job, attempts it was seen with): if it is queued and still has as many, it gets the last
        one back. Its service was sick, not it."""

    async def revoke(self, held: Sequence[tuple[str, int, str]]) -> WrittenOrNot[bool]:
        """(job, rev, token) proposals nobody confirmed: whether the job runs under that token.
        Otherwise its rev has moved on, so a late confirm fails."""

    # --- rebuild -----------------------------------------------------------------------------
    async def turn(self) -> tuple[Stamp, Turn]:
        """What confirmations must agree with, and whether somebody rebuilds the index."""

    async def begin_rebuild(self, life: str, over: int) -> bool:
        """From now on only claims under this life of the index are confirmed. False if anything
        has happened since the turn of number `over`."""

    async def extend_rebuild(self, life: str, *, done: bool = False) -> bool:
        """The rebuilder is alive, or is done. False if another life has begun meanwhile."""

    def live(self, page: int) -> AsyncGenerator[list[Job], None]:
        """All live jobs that can be in the index, page by page, as of when it began."""

    async def slots(self, pool: str | None = None) -> list[LiveSlot]: ...

    async def starts(self, since: int, ranks: dict[str, int]) -> list[Start]:
        """The last start of each user in each service and tier since then."""

    async def outbox(self, limit: int) -> list[tuple[int, list[str]]]:
        """Rows that a crash left: (seq, jobs)."""

    async def clear_outbox(self, seqs: Sequence[int]) -> None: ...

    # --- reads -------------------------------------------------------------------------------
    async def jobs(self, ids: Sequence[str]) -> dict[str, Job]: ...

    async def fate(self, job: str, owner: str | None) -> str | None:
        """How a job of this tenant, or of this `tenant/key` (None = any), ended whose record is
        gone, while its idempotency key is kept."""

    async def list_jobs(self, wanted: Filter, after: str | None, limit: int) -> list[Job]:
        """Newest first, below the id `after`. Raises TookTooLong instead of looking for more than
        five seconds."""

    async def payload(self, job: str) -> tuple[Json, dict[str, Json]]:
        """Input, and the context that finished steps have made."""

    async def attempts(self, job: str) -> list[Attempt]: ...

    async def events(self, job: str, after: int) -> list[Event]:
        """Numbered after + 1, after + 2, … without a gap."""

    async def count(self, state: State, tenant: str | None = None) -> int:
        """How many jobs of this tenant (None = all), without executions of fan-outs. Raises
        TookTooLong."""

    async def load(self) -> tuple[int, int]:
        """How many jobs are in line and how many run, cheaply."""

    async def running_in(self) -> Counter[tuple[str, str | None]]:
        """How many run of each service in each region. Looks through all that run."""

    async def finished_since(self, since: int) -> dict[State, int]:
        """How many jobs ended how."""

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
        """Limits of this user's own, instead of their tier's (None = the tier's)."""

    async def audit(self, limit: int) -> list[AuditedChange]:
        """The latest administrative changes, newest first."""

    async def credit(
        self, tenant: str, user: str, amount: int, operation: str, now: int, note: str, actor: str
    ) -> int:
        """The balance after the operation; the same again changes nothing, and with another amount
        it is a Conflict."""

    async def balance(self, tenant: str, user: str) -> int: ...

    async def set_pools(
        self,
        pools: Sequence[PoolLimit],
        catalog: str,
        file: str,
        over: int,
        change: SettingChange | None = None,
    ) -> Stamp | Superseded | None:
        """This catalog, made from this file, holds from now on: exactly these pools are limited,
        and claims under older settings are refused. Running jobs that hold no slot of a pool that
        counts them take one, also above the limit. None if the settings are not those of number
        `over`; Superseded if this change was made before, and others since."""

    async def add_pools(
        self, pools: Sequence[PoolLimit], configured: Sequence[str], over: int
    ) -> None:
        """Beside the configured pools these are limited until the settings change, counted as in
        `set_pools`. Nothing happens if the settings are not those of number `over`. Of many added
        pools those that nothing holds a slot in are forgotten: they can be added again."""

    async def settings(self) -> StoredSettings: ...

    async def put_worker(self, worker: Worker, now: int) -> None: ...

    async def hear(self, worker: str, state: WorkerState, now: int) -> Worker | None:
        """The worker as it is, heard of now: its state goes only onward, from active over draining
        to dead, until it is put anew. None if there is no such worker."""

    async def worker(self, worker: str) -> Worker | None: ...

    async def workers(self) -> list[tuple[Worker, int]]:
        """Every worker and when it was last heard of."""

    async def forget_workers(self, before: int) -> int:
        """Workers not heard of since then are gone; how many."""

    async def held(self, worker: str | None = None) -> list[Job]:
        """Running jobs that this worker holds (None = any), in whichever of its calls it got
        them. Looks through all that run."""

    # --- upkeep ------------------------------------------------------------------------------
    async def retire(
        self, finished_before: int, dead_before: int, keys_before: int, limit: int
    ) -> int:
        """Finished jobs, dead letters and keys older than that are gone, at most `limit` of each;
        nothing live, unpublished or needed by a live parent."""

    async def purge(self, tenant: str, dead: Sequence[str], now: int, actor: str) -> int:
        """Those of these jobs that are this tenant's dead letters are gone; how many."""

    async def check(self) -> Counts: ...

    def explain(self, error: Exception) -> SetupError | None:
        """What is wrong with the store itself and what to do about it, if that is the reason."""

    async def close(self) -> None: ...
