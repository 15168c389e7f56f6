"""The parameters and results of the ledger's verbs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from fairlane.errors import FairlaneError
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.event import Fact
from fairlane.model.job import Band, Error, Json
from fairlane.model.lease import Lease, Slot
from fairlane.model.state import Move, State
from fairlane.model.step import Plan
from fairlane.policy.quotas import Quota

T = TypeVar("T")


class WrittenOrNot(NamedTuple, Generic[T]):
    """The outcomes, item by item, and receipts for the outbox rows that name the jobs whose place
    in the index has changed. Hand them back when the index knows."""

    outcomes: list[T]
    receipts: tuple[int, ...]


class Unwritten(NamedTuple):
    """An item whose data the database refused; the others of its batch are written."""

    error: Exception


def joined(
    halves: Iterable[WrittenOrNot[Any] | Exception], sizes: Iterable[int]
) -> WrittenOrNot[Any] | Exception:
    """One answer from two halves; what could not be written stands as its error in its place."""
    outcomes: list[Any] = []
    receipts: tuple[int, ...] = ()
    for half, size in zip(halves, sizes, strict=True):
        if isinstance(half, Exception):
            outcomes += [Unwritten(half)] * size
        else:
            outcomes += half.outcomes
            receipts += half.receipts
    return WrittenOrNot(outcomes, receipts)


class Common(NamedTuple):
    """What those jobs of one call have in common that ask for the same."""

    tenant: str
    key: str
    name: str
    plan: Plan
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


class Submission(NamedTuple):
    """A job ready to be written. `who` is its user as fairness sees them. `cells` makes it a
    fan-out, written with it or not at all; a cell without an `input` has its parent's, with the
    values of its `cell` over it. `refusal` is what it is refused with unless its idempotency key is
    known."""

    id: str
    user: str | None
    who: str
    input: str | None
    common: Common
    refusal: FairlaneError | None = None
    idempotency: tuple[str, str, str] | None = None
    keep_keys: int = 0
    parent: str | None = None
    cell: dict[str, str] | None = None
    cells: tuple[Submission, ...] = ()


class SubmissionAccepted(NamedTuple):
    job: str
    tier: str


class Replayed(NamedTuple):
    """The idempotency key was used before, with the same request. `status` None = still known."""

    job: str
    status: str | None


SubmitOutcome = SubmissionAccepted | Replayed | FairlaneError
"""What became of a request; an error stands in its place."""


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
    """How an attempt ended and what becomes of its job. `facts` are its events; the row of a
    completed job tells them by itself. `closed` = the call is really over, so its
    slots are free; otherwise, if `strict`, they stay until the deadline. `lease_until`: only if the
    lease still ends then, and has not been renewed."""

    lease: Lease
    now: int
    move: Move
    outcome: Outcome
    facts: tuple[Fact, ...] = ()
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
    lease_until: int | None = None


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


QUERY_TIMEOUT_SECONDS = 5.0
"""Seconds after which a look at many jobs is given up."""

GIVEN_UP = "there was too much to look at; name a user, or try again later"


class Filter(NamedTuple):
    tenant: str | None = None
    user: str | None = None
    states: tuple[State, ...] = ()
    name: str | None = None
    tag: str | None = None
    parent: str | None = None
    key: str | None = None


class Renewal(NamedTuple):
    """What a worker must know about its leases: those it has lost, and those cancelled."""

    lost: list[str]
    cancelled: list[str]


class PoolLimit(NamedTuple):
    """A limited pool. `services` and `region` (None = any) say whose running jobs it counts."""

    name: str
    size: int
    services: tuple[str, ...]
    region: str | None


class Stamp(NamedTuple):
    """What every confirmation must agree with: the life of the index and the number of the settings
    in force."""

    life: str
    settings: int

    @classmethod
    def parse(cls, text: str) -> Stamp:
        life, _, settings = text.rpartition("/")
        return cls(life, int(settings))

    def __str__(self) -> str:
        return f"{self.life}/{self.settings}"


class Superseded(NamedTuple):
    """A change was made before, and others after it: the settings in force are not its own."""

    stamp: Stamp


class Turn(NamedTuple):
    """Rebuilds of the index: a number that every sign of life of a rebuilder raises, and whether
    one is at it."""

    number: int
    busy: bool


class Setting(NamedTuple):
    """A live change: the value in force, and the one that was in the file."""

    value: Json
    file_value: Json


class StoredSettings(NamedTuple):
    """What is in force for all processes, the file it was made from, and the live changes. Both
    catalogs are texts, empty before the first start."""

    stamp: Stamp
    catalog: str
    file: str
    changes: dict[str, Setting]


class SettingChange(NamedTuple):
    """A live change, kept until the file's own value changes."""

    name: str
    value: Json
    file_value: Json
    now: int
    actor: str


class AuditedChange(NamedTuple):
    """Who changed what, from what to what."""

    at: int
    actor: str
    action: str
    target: str
    before: str | None
    after: str | None


class Counts(NamedTuple):
    """Everything `doctor` checks; each must be 0 on a healthy ledger."""

    over_limit: int
    orphan_slots: int
    unbalanced_operations: int
    wrong_balances: int
    event_gaps: int
    stuck_parents: int
    unlisted: int
