"""The interface of a scheduling index (priority queue). The memory index is the executable
specification: every other index must choose the same jobs. All times are microseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry, Start
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.circuit_breaker import CircuitBreaker, FailureVerdict
from fairlane.policy.shares import ShareKind

EXACT_POSITIONS = 100
"""Number of positions that are computed exactly. Each one costs one simulated claim, every time a
job's position is asked for."""

FEW_FLOWS_EXAMINED = 100
"""The most flows of one queue from which the jobs ahead of each of many jobs are estimated."""

LOOK_AGAIN_MICROSECONDS = 5_000_000
"""An idle worker that gets no wake-up claims again after this time."""

MAX_DUE_JOBS_PER_CLAIM = 128
"""The most delayed jobs that one claim moves into the queue when they are due."""

RESERVATION_MICROSECONDS = 30_000_000
"""A slot reservation expires this long after the last claim by a worker that could serve it."""

ACCOUNT_RETENTION_MICROSECONDS = 60_000_000
"""The shortest time that the account of a user without jobs is kept."""

MAX_REMEMBERED_LOADS = 1_000
"""The most model loads that are kept per service."""


ACTIVITY_PERIOD_MICROSECONDS = 15_000_000
ACTIVITY_PERIODS = 61
"""Counts of what happened are kept in periods of 15 s: 15 minutes and the present period."""


class Proposal(NamedTuple):
    """A job that the index proposes to hand out, with its fencing token, one slot in every limited
    pool that the job needs, and the region it is to run in."""

    token: str
    entry: Entry
    slots: tuple[Slot, ...]
    region: str | None = None


class Picks(NamedTuple):
    """The result of a claim. A worker that gets no proposal is recorded as idle. Without a wake-up
    it should claim again at `look_again_at`."""

    proposals: list[Proposal]
    look_again_at: int


class HeldEntry(NamedTuple):
    """A proposal that was handed out and is not yet freed, as the index stores it."""

    token: str
    entry: Entry
    slots: tuple[Slot, ...]
    at: int


class ServiceCallRef(NamedTuple):
    """One call to a service, by the fencing token of its attempt."""

    service: str
    region: str | None
    token: str


class Freed(NamedTuple):
    """A lease that ended: its actual cost (None = unknown), the slots that stay taken, and the
    service and region that answered its call, with a result or with an error."""

    token: str
    actual: int | None = None
    kept: tuple[Slot, ...] = ()
    answered: tuple[str, str | None] | None = None


class Standing(NamedTuple):
    """The queue position of one job. `position` counts from 1 (0 = the job is delayed). The job at
    position n would be the n-th that its service starts if no job arrived or left, no time passed,
    slots were free and every started job ended at once. Jobs of users at their running limit come
    last. The first EXACT_POSITIONS positions are exact, later ones are estimates. `level` is the
    rank that the job counts as, `since` the time from which it ages. `ahead` is the number of jobs
    expected to start before it, its user's running limit ignored. `behind_own` is the number of
    earlier jobs of the same user."""

    position: int
    level: int
    since: int
    ahead: int
    behind_own: int
    reasons: tuple[str, ...]


class Depth(NamedTuple):
    """The queue depth of one service and tier: the numbers of waiting and of delayed jobs, and the
    time since which the oldest waits."""

    service: str
    rank: int
    waiting: int
    delayed: int
    oldest: int | None


class BandDepth(NamedTuple):
    """The queued jobs of one service in one band, and in one tier of the last band (otherwise the
    rank is -1): how many jobs, and how many flows they make."""

    band: Band
    rank: int
    jobs: int
    flows: int


def by_band(queues: Iterable[BandDepth]) -> list[BandDepth]:
    """Adds up the lanes of a service."""
    found: dict[tuple[Band, int], BandDepth] = {}
    for band, rank, jobs, flows in queues:
        known = found.get((band, rank), BandDepth(band, rank, 0, 0))
        found[band, rank] = BandDepth(band, rank, known.jobs + jobs, known.flows + flows)
    return [found[key] for key in sorted(found)]


class PoolUse(NamedTuple):
    """The number of held slots of one pool, and its limit."""

    pool: str
    limit: int
    held: int


class Stats(NamedTuple):
    """Counts of the whole index. By lane: `lanes` counts the waiting jobs, `front` those of them
    that are front retries, `delayed` the delayed jobs, `oldest` is the time since which the oldest
    job waits."""

    depths: list[Depth]
    pools: list[PoolUse]
    breakers: dict[str, CircuitBreaker]
    held: int
    idle: int
    lanes: dict[str, int]
    delayed: dict[str, int]
    oldest: dict[str, int]
    front: Mapping[str, int] = MappingProxyType({})


class ModelSample(NamedTuple):
    """What one completed attempt says of its model: how long the model took to load, and how long
    the work took without that (µs; None = not known). `tenant` is the job's, if there is one."""

    service: str
    model: str
    load: int | None = None
    work: int | None = None
    tenant: str | None = None


class ModelTimes(NamedTuple):
    """What is learnt of one model of a service: the averages of its load time and of its work time
    without the load (µs; None = not known), and how many jobs were started that had to load it."""

    service: str
    model: str
    load: int | None
    work: int | None
    loads: int


class SlotModel(NamedTuple):
    """The model that one slot of a called service ran last."""

    pool: str
    n: int
    loaded: Loaded


class TakenSlot(NamedTuple):
    """A taken slot of a pool: the token that holds it, and the job handed out under that token with
    the time it was handed out. The entry is None if the job has ended and its slot is kept, or if
    the index does not know it."""

    slot: Slot
    token: str
    entry: Entry | None
    at: int


class NextJob(NamedTuple):
    """A waiting job that will start soon, and why it is chosen: `kind` is the class under which it
    is handed out, `level` the rank it counts as, `since` the time from which it ages. `warm`: it is
    chosen before others because its model is loaded. `in_flow` is the number of waiting jobs of its
    flow, itself included. `blocked`: it cannot start now, because the service is paused, a circuit
    breaker is open, or its user is at the running limit."""

    entry: Entry
    kind: ShareKind
    level: int
    since: int
    warm: bool
    in_flow: int
    blocked: bool


class ModelReport(NamedTuple):
    """What is known of the models of one service. `times` are the most recently used ones first.
    `last` is the model of the job started last, since when it is loaded, and how many jobs in a row
    it has served. `slots` are those of a called service that remember a model. `workers` are, by
    id, the models of the workers that this process knows; only `Engine.model_report` fills it."""

    times: list[ModelTimes]
    last: Loaded
    slots: list[SlotModel]
    workers: Mapping[str, Loaded] = MappingProxyType({})


class IndexServer(NamedTuple):
    """The server behind an index. `refuses_writes` says why it accepts no writes at present, and is
    empty if it does. A limit of 0 means none."""

    version: str
    eviction_policy: str
    used_bytes: int
    max_bytes: int
    connections: int
    max_connections: int
    refuses_writes: str = ""

    @property
    def memory_is_full(self) -> bool:
        return bool(self.max_bytes) and self.used_bytes >= self.max_bytes


class Index(Protocol):
    # --- waiting jobs ------------------------------------------------------------------------
    async def put(self, entries: Sequence[Entry], now: int) -> None:
        """Queue each entry, or delay it until it is ready. Entries of which the index knows the
        same or a newer revision are ignored. Wakes workers that can run them now or soon."""

    async def take(self, jobs: Sequence[tuple[str, int]]) -> None:
        """Remove these (job, revision) from the queue, unless the index knows a newer revision.
        Held entries are not changed."""

    async def correct_entry(self, seen: Entry, truth: Entry | None, now: int) -> None:
        """Replace the waiting entry `seen` by `truth`, or remove it if `truth` is None, whatever
        the revisions are. Nothing happens if the index has a different entry by now."""

    async def announced(self, levels: Sequence[tuple[str, int]]) -> None:
        """Record that the owners of these (job, rank) have been told the rank the job counts as."""

    # --- claims and leases -------------------------------------------------------------------
    async def claim(self, worker: Worker, loaded: Loaded, n: int, now: int, epoch: str) -> Picks:
        """Hand out up to n jobs that this worker can run, in queue order. Each gets all the slots
        it needs and becomes a held entry. Of the worker's regions, a job gets one that it allows
        and that can start it: the one with the least outstanding work relative to its limit, then
        the first in the catalog. Raises NotReady under another epoch or while loading."""

    async def drop(self, tokens: Sequence[str], now: int) -> None:
        """Discard proposals that the ledger refused: free their slots. Their jobs are not queued
        again."""

    async def free(self, freed: Sequence[Freed], now: int) -> None:
        """End these leases: free their slots except those kept, correct the fair-share counters by
        the actual cost and wake workers. After a probe that ends without an answer, the circuit
        breaker allows another probe. The call is idempotent."""

    async def unverified(self, before: int, limit: int) -> list[HeldEntry]:
        """Held entries that were not verified against the ledger since `before`, oldest first."""

    async def verified(self, tokens: Sequence[str], now: int) -> None:
        """Record that the ledger confirmed the leases of these tokens."""

    async def wait(self, worker_id: str, until: int) -> None:
        """Wait until there may be a job for this idle worker, at the latest until `until`."""

    async def leave(self, worker_id: str) -> None:
        """Remove the worker from the idle workers: it is not woken any more."""

    async def end_waits(self, worker_id: str) -> None:
        """End all pending `wait` calls of this worker."""

    # --- services ----------------------------------------------------------------------------
    async def configure(self, catalog: Catalog, settings: int) -> None:
        """Apply this catalog. `settings` is its version: older versions are ignored. Held entries
        stay held."""

    async def breaker(self, service: str, region: str | None) -> CircuitBreaker:
        """The circuit breaker of this region, or of the service if `region` is None."""

    async def unavailable(
        self, call: ServiceCallRef, job: str, now: int, retry_after: int
    ) -> FailureVerdict:
        """Count a failed call. Returns the consequences for the circuit breaker and for this job.
        `retry_after` is what the service asked for (0 = nothing)."""

    async def learn_times(self, samples: Sequence[ModelSample]) -> None:
        """Update the average load and work times of these models, and of their services."""

    # --- queries -----------------------------------------------------------------------------
    async def standing(self, job: str, now: int) -> Standing | None:
        """The position of the job, or None if the index has no such waiting job."""

    async def estimates(self, jobs: Sequence[str], now: int) -> dict[str, Standing]:
        """Like `standing` for each of these jobs that waits, except that every position is an
        estimate. Much cheaper."""

    async def front(self, service: str, n: int, now: int) -> list[NextJob]:
        """The jobs that the next n claims for this service take (n up to EXACT_POSITIONS), in their
        order, if no job arrives or leaves, no time passes, slots are free, every started job ends
        at once with an answer, and one worker that covers all lanes and regions claims. Blocked
        jobs come last: no claim takes them. Changes nothing. Empty while the index is being
        rebuilt."""

    async def held_slots(self, pools: Sequence[str]) -> list[TakenSlot]:
        """The taken slots of these pools, in the order of pool and number."""

    async def band_depths(self, service: str) -> list[BandDepth]:
        """The queued jobs of this service by band and tier, without delayed ones. Its cost does not
        depend on their number."""

    async def promotable(self, now: int, limit: int) -> list[tuple[str, int]]:
        """Queued jobs that by ageing count as a better rank than was announced: (job, rank)."""

    async def differing(self, truth: Sequence[Entry]) -> list[tuple[str, Entry | None]]:
        """Compare waiting jobs with the ledger's `truth`. Returns those that differ, with what the
        index has: (job, entry or None). Held jobs are not compared."""

    def scan(self, page: int) -> AsyncIterator[list[Entry]]:
        """All waiting jobs, in pages, as of the start of the iteration."""

    async def stats(self, examined: int | None = None) -> Stats:
        """Counts of the whole index. With `examined`, the oldest waiting job is looked for in so
        many flows of each queue at most, so that the cost does not depend on the number of users
        that wait; otherwise in all of them, or in a Redis index in 1,000."""

    async def count_activity(self, period: int, counts: Mapping[str, int]) -> None:
        """Add these counts to those of all processes for this period (its number). Counts of the
        last ACTIVITY_PERIODS periods are kept."""

    async def activity(self, since: int) -> dict[int, dict[str, int]]:
        """The counts of all processes by period, from period `since` on."""

    async def models(self, service: str, tenant: str | None, most: int) -> ModelReport:
        """What is known of the models of a service: the learnt times of the `most` that were used
        last, by completed jobs of this tenant or of any (None), and where any were loaded last."""

    async def lanes(self, service: str) -> Mapping[str, int]:
        """The number of waiting jobs in each lane of this service, delayed ones included."""

    # --- listeners to jobs -------------------------------------------------------------------
    def notify(self, jobs: Sequence[str]) -> None:
        """Publish that these jobs have changed in the ledger. Other processes that subscribe to
        one of them get at most one message. Returns at once and never fails."""

    def subscribe(self, job: str, changed: Callable[[], None]) -> None:
        """Call `changed` whenever another process may have changed the job. `changed` is also
        called when the subscription starts or is renewed: earlier messages may be lost."""

    def unsubscribe(self, job: str) -> None:
        """End the subscription to this job."""

    def publish_output(self, job: str, text: str) -> None:
        """Publish a message of streamed output to other processes that listen to this job. Returns
        at once and never fails. Messages arrive in order, or not at all."""

    async def flush_output(self) -> None:
        """Wait until all published output is sent, for a short time."""

    def subscribe_output(self, job: str, received: Callable[[str], None]) -> None:
        """Call `received` with each message of output that another process publishes."""

    def unsubscribe_output(self, job: str) -> None:
        """End the subscription to the output of this job."""

    # --- rebuild -----------------------------------------------------------------------------
    async def serves(self, epoch: str) -> int | None:
        """The version of the index's settings if the index is complete and accepts claims under
        this epoch, else None. Raises NotReady if the index cannot be reached."""

    async def begin(self, epoch: str) -> None:
        """Start a rebuild with an empty index. While it loads, claims are refused; puts and takes
        are recorded."""

    async def load(self, epoch: str, entries: Sequence[Entry], held: Sequence[HeldEntry]) -> None:
        """Load one page of waiting and held jobs. Jobs with a newer recorded change are skipped.
        Pages of another epoch are ignored."""

    async def load_slots(self, epoch: str, rows: Sequence[tuple[Slot, str]]) -> None:
        """Load (slot, token) rows of the ledger, except those of tokens freed since `begin`."""

    async def load_starts(self, epoch: str, starts: Sequence[Start]) -> None:
        """Load the last starts of users, from which their jobs age."""

    async def open(self, epoch: str, now: int) -> bool:
        """End the rebuild: claims under this epoch are accepted. False if another rebuild has
        started since."""

    async def cleanup(self, now: int) -> None:
        """Remove accounts and queues that no longer affect the order. Called once a minute."""

    async def sync_slots(self, pool: str, rows: Sequence[tuple[Slot, str]], now: int) -> int:
        """Correct one pool by the ledger's rows. Returns the number of corrected slots."""

    async def server(self) -> IndexServer | None:
        """The server behind the index; None if the index is in this process. Raises NotReady if the
        server does not answer."""

    async def close(self) -> None:
        """Send what is pending and release all connections."""
