"""What every ledger can do. One guarantee a method.

Writing verbs take lists and give each item its own outcome; concurrent calls share a transaction
and are answered after its durable commit. Whatever may have been committed without an answer can be
run again: ids are chosen before, leases and operations are recognised by their tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from fairlane.errors import FairlaneError
from fairlane.model.attempt import Attempt, Fault, Outcome
from fairlane.model.entry import Start
from fairlane.model.event import Event, Fact
from fairlane.model.job import Band, Error, Job, Json, Progress
from fairlane.model.lease import Lease, Slot
from fairlane.model.state import Move, State
from fairlane.model.step import Plan
from fairlane.model.worker import Worker
from fairlane.policy.admission import Quota

T = TypeVar("T")


class Written(NamedTuple, Generic[T]):
    """The outcomes, item by item, and receipts for the outbox rows that name the jobs whose place
    in the index has changed. Hand them back when the index knows."""

    outcomes: list[T]
    receipts: tuple[int, ...]


class Submission(NamedTuple):
    """A job ready to be written. `cells` makes it a fan-out, written with it or not at all;
    `refusal` is what it is refused with unless its idempotency key is known."""

    id: str
    tenant: str
    key: str
    user: str | None
    name: str
    plan: Plan
    input: str
    model: str
    duration: float
    tier: str
    timeout: int
    ready_at: int
    give_up_at: int | None
    created_at: int
    tags: tuple[str, ...]
    callback: str | None
    trace: str | None
    quota: Quota
    refusal: FairlaneError | None = None
    idempotency: tuple[str, str, str] | None = None
    keep_keys: int = 0
    parent: str | None = None
    cell: dict[str, str] | None = None
    cells: tuple[Submission, ...] = ()


class Accepted(NamedTuple):
    job: str


class Replayed(NamedTuple):
    """The idempotency key was used before, with the same request. `status` None = still known."""

    job: str
    status: str | None


SubmitOutcome = Accepted | Replayed | FairlaneError


class Confirmation(NamedTuple):
    """A proposal of the index, to be made true or refused. `pools` is what the job needs by the
    settings: the proposal must name a slot in each, no more and no less."""

    token: str
    job: str
    rev: int
    lane: str
    tier: str
    user: str
    slots: tuple[Slot, ...]
    pools: frozenset[str]
    cap: int
    worker: str
    region: str | None
    cost: int
    lease: int
    now: int
    epoch: str


class Unconfirmed(NamedTuple):
    """Nothing was granted. `pools` are those whose slots the index has wrong."""

    reason: str
    pools: tuple[str, ...] = ()


class Settlement(NamedTuple):
    """How an attempt ended and what becomes of its job. `closed` = the call is really over, so its
    slots are free; otherwise, if `strict`, they stay until the deadline."""

    lease: Lease
    now: int
    move: Move
    outcome: Outcome
    facts: tuple[Fact, ...]
    fault: Fault | None = None
    message: str | None = None
    output: str | None = None
    metrics: str | None = None
    error: Error | None = None
    attempt: int = 0
    timeout: int = 0
    ready_at: int = 0
    give_up_at: int | None = None
    band: Band = Band.TIER
    lane: str = ""
    closed: bool = True
    strict: bool = False


class Settled(NamedTuple):
    """The job's state, its rev, the slots that stay taken, and the fan-out that ended with it."""

    state: State
    rev: int
    kept: tuple[Slot, ...] = ()
    ended_parent: str | None = None
    again: bool = False


class Stale(NamedTuple):
    """The lease was gone; `state` is where the job is now (None = it does not exist)."""

    state: State | None


class Ended(NamedTuple):
    """A job that was ended from outside: the token its worker held, if any, and its kept slots."""

    job: str
    rev: int
    token: str | None
    kept: tuple[Slot, ...]


class Reopened(NamedTuple):
    """Jobs that are back in line (a fan-out's cells), and the parents that run again."""

    jobs: list[str]
    again: bool


class Skipped(NamedTuple):
    price: int
    balance: int
    again: bool


class Request(NamedTuple):
    """Who wants what. `op` names the request, so that running it again is no second move; `tenant`
    None = whoever owns the job."""

    job: str
    tenant: str | None
    op: str
    now: int


class LiveSlot(NamedTuple):
    slot: Slot
    token: str
    job: str


class Filter(NamedTuple):
    tenant: str | None = None
    user: str | None = None
    states: tuple[State, ...] = ()
    name: str | None = None
    tag: str | None = None
    parent: str | None = None


class Renewal(NamedTuple):
    """What a worker must know about its leases: those it has lost, and those cancelled."""

    lost: list[str]
    cancelled: list[str]


class Counts(NamedTuple):
    """Everything `doctor` checks; each must be 0 on a healthy ledger."""

    over_limit: int
    orphan_slots: int
    unbalanced_operations: int
    wrong_balances: int
    event_gaps: int
    stuck_parents: int


class Ledger(Protocol):
    # --- hot ---------------------------------------------------------------------------------
    async def submit(self, items: Sequence[Submission]) -> Written[SubmitOutcome]:
        """Accepted ⇒ durable, once, within every quota, also under concurrent submits. A known
        idempotency key is answered before any quota."""

    async def confirm(self, items: Sequence[Confirmation]) -> Written[Lease | Unconfirmed]:
        """A lease only if the job is queued at that rev and ready, the epoch is current, and every
        slot is free and within its limit. The same token again gets the same lease."""

    async def settle(self, items: Sequence[Settlement]) -> Written[Settled | Stale]:
        """Result, next state, slots, events: all or nothing, and only while the token holds."""

    def published(self, receipts: Sequence[int]) -> None:
        """The index knows what these rows were about; they may go."""

    # --- leases ------------------------------------------------------------------------------
    async def renew(self, tokens: Sequence[tuple[str, str]], until: int, now: int) -> Renewal:
        """Every (job, token) that still holds lasts until then; the others are named."""

    async def progress(self, job: str, token: str, progress: Progress) -> State | None:
        """Kept if the token holds (None); otherwise the state the job is in."""

    async def lease(self, job: str, token: str) -> Lease | Stale:
        """The lease as it was handed out, for who only has its name."""

    async def expired(self, now: int, limit: int) -> list[Lease]:
        """Leases past their end or their deadline."""

    async def free_slots(self, now: int, limit: int) -> list[str]:
        """Slots kept beyond their lease whose time is over are free; the tokens that had them."""

    # --- moves from outside ------------------------------------------------------------------
    async def cancel(
        self, request: Request, strict: frozenset[str]
    ) -> Written[list[Ended] | FairlaneError]:
        """Cancelled at once and for good, with all cells of a fan-out. The slots of a running call
        stay until its deadline where its service is strict, else until its lease ends."""

    async def reopen(
        self, request: Request, move: Move, quota: Quota | None
    ) -> Written[Reopened | FairlaneError]:
        """Resume or replay: exactly once for one failure, whoever asks and how often."""

    async def skip(self, request: Request, price: int) -> Written[Skipped | FairlaneError]:
        """Charged and moved to the very front, together or not at all, once in a job's life."""

    async def promote(
        self, levels: Sequence[tuple[str, str]], order: Sequence[str], now: int
    ) -> list[str | None]:
        """Announce (job, tier) to owners of queued jobs: the old level, or None where it was as
        good. `order` names the tiers, best first."""

    async def give_up(self, now: int, limit: int) -> Written[list[Job]]:
        """Queued jobs past their longest wait have failed, resumable."""

    async def forgive(self, jobs: Sequence[str]) -> None:
        """These queued jobs get their last attempt back: their service was sick, not they."""

    async def revoke(self, held: Sequence[tuple[str, int, str]]) -> Written[bool]:
        """(job, rev, token) proposals nobody confirmed: whether the job runs under that token.
        Otherwise its rev has moved on, so a late confirm fails."""

    # --- rebuild -----------------------------------------------------------------------------
    async def epoch(self) -> str: ...

    async def new_epoch(self, epoch: str) -> None:
        """From now on only claims under this epoch are confirmed."""

    def live(self, page: int) -> AsyncIterator[list[Job]]:
        """All live jobs that can be in the index, page by page, as of when it began."""

    async def slots(self, pool: str | None = None) -> list[LiveSlot]: ...

    async def starts(self, since: int, ranks: dict[str, int]) -> list[Start]:
        """The last start of each user in each service and tier since then."""

    async def outbox(self, limit: int) -> list[tuple[int, list[str]]]:
        """Rows that a crash left: (seq, jobs)."""

    async def clear_outbox(self, seqs: Sequence[int]) -> None: ...

    # --- reads -------------------------------------------------------------------------------
    async def jobs(self, ids: Sequence[str]) -> dict[str, Job]: ...

    async def fate(self, job: str) -> str | None:
        """How a job ended whose record is gone, while its idempotency key is kept."""

    async def list_jobs(self, wanted: Filter, after: str | None, limit: int) -> list[Job]:
        """Newest first, below the id `after`."""

    async def payload(self, job: str) -> tuple[Json, dict[str, Json]]:
        """Input, and the context that finished steps have made."""

    async def attempts(self, job: str) -> list[Attempt]: ...

    async def events(self, job: str, after: int) -> list[Event]:
        """Numbered after + 1, after + 2, … without a gap."""

    async def count(self, state: State) -> int: ...

    async def finished_since(self, since: int) -> dict[State, int]:
        """How many jobs ended how."""

    # --- users, money, settings, workers ---------------------------------------------------------
    async def tier_of(self, tenant: str, user: str) -> str | None: ...

    async def set_tier(self, tenant: str, user: str, tier: str, now: int, actor: str) -> None: ...

    async def credit(
        self, tenant: str, user: str, amount: int, operation: str, now: int, note: str
    ) -> int:
        """The balance after the operation; the same operation again changes nothing."""

    async def balance(self, tenant: str, user: str) -> int: ...

    async def set_pool(
        self, pool: str, size: int, services: Sequence[str], region: str | None
    ) -> None:
        """The limit from now on (0 = none). Running jobs of these services in this region (None =
        any) that hold no slot of a newly limited pool take one, also above the limit."""

    async def setting(self, name: str, value: Json, file_value: Json, now: int, actor: str) -> None:
        """A live change, kept until the file's own value changes."""

    async def settings(self) -> dict[str, tuple[Json, Json]]: ...

    async def put_worker(self, worker: Worker, now: int) -> None: ...

    async def workers(self) -> list[tuple[Worker, int]]:
        """Every worker and when it was last heard of."""

    # --- upkeep ------------------------------------------------------------------------------
    async def retire(
        self, finished_before: int, dead_before: int, keys_before: int, limit: int
    ) -> int:
        """Finished jobs, dead letters and keys older than that are gone, at most `limit` of each;
        nothing live, unpublished or needed by a live parent."""

    async def check(self) -> Counts: ...

    async def close(self) -> None: ...
