"""The shared state of the engine: the two stores (ledger and index), settings, clock, caches."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from fairlane.clock import Clock
from fairlane.engine.activity import Activity
from fairlane.engine.eta import Forecasts
from fairlane.engine.instrumentation import Instrumentation, NoInstrumentation
from fairlane.engine.output_stream import OutputStream
from fairlane.engine.submit_terms import TermsBook
from fairlane.engine.subscriptions import Subscriptions
from fairlane.engine.task_types import TaskTypes
from fairlane.errors import NotReady, UnknownName
from fairlane.ids import Ids
from fairlane.index.index import Index
from fairlane.ledger.ledger import Ledger
from fairlane.ledger.messages import Owner, Stamp
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band, Job, fair_user
from fairlane.model.queue_entry import Entry, WaitingStep
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.step import RetryTerms, service_of
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.estimate import FIRST_COST_MICROSECONDS, Average

log = logging.getLogger("fairlane")

MAX_SLOT_READS = 3

INDEX_BATCH = 1_000
"""Jobs per call to the index. Other callers are served between two calls."""


MAX_INDEX_WAIT_SECONDS = 0.05
"""Seconds that a caller waits at most for the index before its change is committed."""

T = TypeVar("T")


class UnavailableCall(NamedTuple):
    """An unanswered call to a service, whose failure is being written to the ledger."""

    token: str
    job: str
    now: int
    retry_after: int


@dataclass(slots=True)
class ShownQueue:
    """The lanes of a service, with their depths, as this process last read them from the index, and
    how many jobs this process has queued since."""

    lanes: Mapping[str, int]
    joined: int = 0


class TierSource(Protocol):
    """A source of users' tiers that takes precedence over the ledger."""

    async def tiers_of(self, tenant: str, users: Collection[str]) -> Mapping[str, str]:
        """Each user's tier. An implementation must not raise and must answer quickly."""


@dataclass(slots=True)
class Core:
    ledger: Ledger
    index: Index
    catalog: Catalog
    clock: Clock
    ids: Ids
    jitter: random.Random
    epoch: str = ""
    settings: int = 0
    settings_told: int = -1
    """The version of the settings that this process has last told the index."""
    last_rebuild: str = ""
    """The index epoch of the last rebuild that this process began."""
    rebuild_seen: tuple[int, float] = (-1, 0.0)
    """The last heartbeat number of a rebuild, and when it was first seen (loop time, seconds)."""
    rebuild_not_before: float = 0.0
    """This process does not rebuild before this time (loop time, seconds)."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the index is built."""
    index_reached: bool = True
    """Whether the index answered when it was last checked."""
    costs: Average = field(default_factory=lambda: Average(FIRST_COST_MICROSECONDS))
    loaded: dict[str, Loaded] = field(default_factory=dict)
    coming: Counter[str] = field(default_factory=Counter)
    """Number of jobs, by first service, that are being written and are not in the index yet."""
    queues_shown: dict[str, ShownQueue] = field(default_factory=dict)
    """Last known queues, by service. A submit uses them while the index does not answer."""
    task_types: TaskTypes = field(default_factory=TaskTypes)
    tiers_of_users: dict[tuple[str, str], str] = field(default_factory=dict)
    key_users: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """Users that count for their (tenant, API key), each with the time until which it does (µs)."""
    pending_places: dict[Owner, tuple[int, asyncio.Future[int | None]]] = field(
        default_factory=dict
    )
    """When a user's next job probably ends (µs), and when that was estimated (µs)."""
    forecasts: Forecasts = field(default_factory=Forecasts)
    activity: Activity = field(default_factory=Activity)
    broken: dict[tuple[str, str | None], int] = field(default_factory=dict)
    """Services and regions whose open circuit breaker was logged, and when it opened (µs)."""
    failing: dict[tuple[str, str | None], list[UnavailableCall]] = field(default_factory=dict)
    """Failures, by service and region, that are being written and that the circuit breaker in the
    index has not counted yet."""
    waiting_claims: int = 0
    """Number of claims of this process that wait for work (long polls)."""
    index_missed: bool = False
    """Whether the ledger has a change that the index could not be told."""
    leftovers: set[asyncio.Task[None]] = field(default_factory=set)
    """Tasks that finish the work of callers that have disconnected."""
    reached_since: int = 0
    """Since when this process has reached the ledger without a break (µs)."""
    ledger_answered_at: int = 0
    """When the ledger last answered (machine clock, µs)."""
    draining: set[str] = field(default_factory=set)
    rebuilding: asyncio.Lock = field(default_factory=asyncio.Lock)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    tier_source: TierSource | None = None
    instrumentation: Instrumentation = field(default_factory=NoInstrumentation)
    seen: dict[str, tuple[Worker, int]] = field(default_factory=dict)
    declared: Mapping[str, RetryTerms] = field(default_factory=dict)
    """Retry terms by task type, as workers declare them."""
    workers_read: tuple[int, list[tuple[Worker, int]]] = field(default_factory=lambda: (0, []))
    """When the workers were last read from the ledger (µs), and these workers."""
    subscriptions: Subscriptions = field(init=False)
    outputs: OutputStream = field(init=False)
    file: Catalog = field(init=False)
    terms: TermsBook = field(init=False)

    def __post_init__(self) -> None:
        self.subscriptions = Subscriptions(self.index)
        self.outputs = OutputStream(self.index)
        self.file = self.catalog
        self.adopt(self.catalog)

    def adopt(self, catalog: Catalog, settings: int = 0) -> None:
        """Use these settings, which have this version number, from now on."""
        self.catalog, self.settings = catalog, settings
        self.terms = TermsBook(catalog, self.declared)

    def declare(self, declared: Mapping[str, RetryTerms]) -> None:
        """Use these retry terms of task types for jobs that are submitted from now on."""
        self.declared = declared
        self.terms = TermsBook(self.catalog, declared)

    @property
    def stamp(self) -> str:
        """The epoch of the index and the version of the settings. The ledger confirms a claim only
        if both are current."""
        return str(Stamp(self.epoch, self.settings))

    def service(self, name: str) -> Service:
        """The settings of this service; default settings if it is no longer configured."""
        try:
            return self.catalog.service(name)
        except UnknownName:
            return Service(name)

    def forget_worker(self, worker: str) -> None:
        """Remove a worker from the caches: it has ended, or its last heartbeat is long ago."""
        self.seen.pop(worker, None)
        self.loaded.pop(worker, None)
        self.draining.discard(worker)

    def now(self) -> int:
        return self.clock.now()

    async def ask_index(self, answer: Awaitable[T]) -> T | None:
        """The answer of the index; None if it does not answer within 50 ms or is unreachable."""
        try:
            async with asyncio.timeout(MAX_INDEX_WAIT_SECONDS):
                return await answer
        except (NotReady, TimeoutError):
            return None

    @contextmanager
    def telling_index(self) -> Iterator[None]:
        """Context for telling the index about changes that the ledger has committed. An unreachable
        index is no error: it learns the changes later, from the outbox and by reconciliation."""
        try:
            yield
        except NotReady:
            self.index_missed = True

    def finish(self, work: Coroutine[None, None, None]) -> None:
        """Run this in the background after its caller has disconnected. A sweep repairs what
        fails."""
        task = asyncio.create_task(work)
        self.leftovers.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.leftovers.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("what a caller left was not finished: %s", task.exception())

    def entry(self, job: Job) -> Entry:
        """The index entry of a queued job, made from its ledger row."""
        step = WaitingStep(
            job=job.id,
            rev=job.rev,
            lane=job.lane,
            band=job.band,
            tier=job.tier,
            level=job.level,
            ready_at=job.ready_at,
            waited=job.waited,
            paid_at=job.paid_at,
            user=fair_user(job.tenant, job.user, job.key),
            model=job.model,
        )
        return self.place_in_line(step)

    def place_in_line(self, step: WaitingStep) -> Entry:
        """The index entry of a waiting step: of a new job, a next step, a retry, or in a
        rebuild."""
        tiers = self.catalog.tiers
        is_skip = step.band is Band.SKIP
        return Entry(
            id=step.job,
            rev=step.rev,
            lane=step.lane,
            band=step.band,
            rank=tiers.rank(step.tier),
            score=step.paid_at if is_skip else step.ready_at - step.waited,
            ready_at=step.ready_at,
            user=step.user,
            model=step.model,
            cost=self.costs.get(service_of(step.lane), step.model),
            cap=tiers[step.tier].max_running_per_user,
            announced=tiers.rank(step.level),
        )


async def publish(core: Core, jobs: Sequence[str]) -> None:
    """Tell the index the present state of these jobs in the ledger. Idempotent, and safe in any
    order: the index ignores an older revision."""
    for start in range(0, len(jobs), INDEX_BATCH):
        await _publish(core, jobs[start : start + INDEX_BATCH])


async def _publish(core: Core, jobs: Sequence[str]) -> None:
    found = await core.ledger.jobs(jobs)
    queued = [job for job in found.values() if job.state is State.QUEUED and not job.fan_out]
    gone = [(job.id, job.rev) for job in found.values() if job.state is not State.QUEUED]
    gone += [(job, 1 << 62) for job in jobs if job not in found]
    await core.index.take(gone)
    await core.index.put([core.entry(job) for job in queued], core.now())


async def sync_pool(core: Core, pool: str) -> int:
    """Set the slots of this pool in the index to those in the ledger. A corrected slot may have
    been freed after it was read, so the slots are read again, up to 3 times. Returns the number of
    corrections."""
    total = 0
    for _ in range(MAX_SLOT_READS):
        rows = [(row.slot, row.token) for row in await core.ledger.slots(pool)]
        corrected = await core.index.sync_slots(pool, rows, core.now())
        total += corrected
        if not corrected:
            break
    return total
