"""The parameters and results of the ledger's operations (data transfer objects)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from fairlane.errors import FairlaneError
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.event import Fact
from fairlane.model.fanout import OnCellFailure
from fairlane.model.job import Band, Error, Json
from fairlane.model.lease import Lease, Slot
from fairlane.model.state import Move, State
from fairlane.model.step import Plan
from fairlane.policy.quotas import Quota

T = TypeVar("T")


class WrittenOrNot(NamedTuple, Generic[T]):
    """The outcome of each item, and receipts for the outbox rows that name the jobs whose place in
    the index has changed. Return the receipts when the index has been updated."""

    outcomes: list[T]
    receipts: tuple[int, ...]


class Unwritten(NamedTuple):
    """An item whose data the database refused. The rest of its batch is written."""

    error: Exception


def joined(
    halves: Iterable[WrittenOrNot[Any] | Exception], sizes: Iterable[int]
) -> WrittenOrNot[Any] | Exception:
    """One result from the two halves of a batch. Items of a half that could not be written get its
    error as their outcome."""
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
    """The values that jobs of one call share if they make the same request."""

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
    on_cell_failure: OnCellFailure = OnCellFailure.CONTINUE


class Submission(NamedTuple):
    """A job ready to be written. `who` is its user for fairness accounting. `cells` makes it a
    fan-out, written with it or not at all. A cell without an `input` has its parent's input,
    overridden by the values of its `cell`. `refusal` is the error that refuses the job, unless its
    idempotency key is known."""

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
    """The idempotency key was used before, with the same request. `status` is how the job ended if
    its record is deleted, and None while the record exists."""

    job: str
    status: str | None


SubmitOutcome = SubmissionAccepted | Replayed | FairlaneError
"""The outcome of a submission; an error is returned as a value."""


class Confirmation(NamedTuple):
    """A proposal of the index, to be granted or refused. `pools` is what the job needs by the
    settings: the proposal must name exactly one slot in each."""

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
    """The proposal was refused. `pools` are those whose slots are wrong in the index."""

    reason: str
    pools: tuple[str, ...] = ()


class Settlement(NamedTuple):
    """How an attempt ended and the job's next state. `facts` are its events; the row of a completed
    job implies them. `closed`: the call is certainly over, so its slots are free; otherwise, if
    `strict`, they stay taken until the deadline. `lease_until`: settle only if the lease still ends
    then, and has not been renewed. `step`: the earlier step that the job returns to or ends at,
    with `attempt` used attempts; its output is deleted if it runs again."""

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
    step: int | None = None


class Settled(NamedTuple):
    """The job's state, its rev, the slots that stay taken, the fan-out that ended with it, and the
    fan-out whose other cells are to be stopped because of it."""

    state: State
    rev: int
    kept: tuple[Slot, ...] = ()
    ended_parent: str | None = None
    again: bool = False
    stopping_parent: str | None = None


class Stale(NamedTuple):
    """The lease no longer held; `state` is the job's present state (None = it does not exist)."""

    state: State | None


class Ended(NamedTuple):
    """A job that was ended by a request: the token its worker held, if any, and its kept slots."""

    job: str
    rev: int
    token: str | None
    kept: tuple[Slot, ...]


class Reopened(NamedTuple):
    """Jobs that are queued again (the cells, if it is a fan-out), and the parents that run
    again."""

    jobs: list[str]
    again: bool


class Skipped(NamedTuple):
    price: int
    balance: int
    again: bool


class Request(NamedTuple):
    """A caller's request for a job. `op` is its idempotency key: the same again is no second
    transition. `tenant` None = a job of any tenant."""

    job: str
    tenant: str | None
    op: str
    now: int


class LiveSlot(NamedTuple):
    slot: Slot
    token: str
    job: str


QUERY_TIMEOUT_SECONDS = 5.0
"""Seconds after which a query over many jobs is given up."""

GIVEN_UP = "there was too much to look at; name a user, or try again later"


class Filter(NamedTuple):
    """Which jobs are wanted (None = any). `key` finds the jobs that this API key submitted for no
    user. `service` is that of the present step, `region` that of the last attempt. `error_code` is
    the job's, or the fault of the last attempt. `ended_from` and `ended_to` (µs) bound the time at
    which the job ended."""

    tenant: str | None = None
    user: str | None = None
    states: tuple[State, ...] = ()
    name: str | None = None
    tag: str | None = None
    parent: str | None = None
    key: str | None = None
    service: str | None = None
    region: str | None = None
    error_code: str | None = None
    ended_from: int | None = None
    ended_to: int | None = None
    tier: str | None = None
    model: str | None = None


class Owner(NamedTuple):
    """The user whose jobs a quota counts; jobs without a user belong to their API key."""

    tenant: str
    user: str | None
    key: str


class CountedUsers(NamedTuple):
    """The users that count for a key, with the time until which they do (µs), and when the next
    place frees (µs); 0 if no user was refused."""

    until: dict[str, int]
    frees_at: int = 0


class Renewal(NamedTuple):
    """What a worker must know about its leases: those it has lost, and those cancelled."""

    lost: list[str]
    cancelled: list[str]


class PoolLimit(NamedTuple):
    """A limited pool. It counts the running jobs of `services` in `region` (None = any)."""

    name: str
    size: int
    services: tuple[str, ...]
    region: str | None


class Stamp(NamedTuple):
    """What every confirmation must match: the generation (`life`) of the index and the number of
    the settings in force."""

    life: str
    settings: int

    @classmethod
    def parse(cls, text: str) -> Stamp:
        life, _, settings = text.rpartition("/")
        return cls(life, int(settings))

    def __str__(self) -> str:
        return f"{self.life}/{self.settings}"


class Superseded(NamedTuple):
    """The change was made before and has been replaced since, so the settings in force are not its
    own."""

    stamp: Stamp


class Turn(NamedTuple):
    """The state of index rebuilds: a number that every heartbeat of a rebuilding process raises,
    and whether a rebuild is in progress."""

    number: int
    busy: bool


class Setting(NamedTuple):
    """A live change: the value in force, and the value that the file had."""

    value: Json
    file_value: Json


class StoredSettings(NamedTuple):
    """The settings in force for all processes, the file they were made from, and the live changes.
    Both catalogs are texts, empty before the first start."""

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
    """An audit record: the actor, the action, and the value before and after."""

    at: int
    actor: str
    action: str
    target: str
    before: str | None
    after: str | None


class Counts(NamedTuple):
    """The counts that `doctor` checks; each must be 0 on a healthy ledger."""

    over_limit: int
    orphan_slots: int
    unbalanced_operations: int
    wrong_balances: int
    event_gaps: int
    stuck_parents: int
    unlisted: int
