"""The index interface: what every index can do. The memory index is the executable specification;
any other index must choose the same jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fairlane.model.catalog import Catalog
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry, Start
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.circuit_breaker import CircuitBreaker, FailureVerdict

EXACT_POSITIONS = 100
"""Each costs a step of a rehearsal, every time a job's position is asked for."""

LOOK_AGAIN_MICROSECONDS = 5_000_000
"""After so long an idle worker looks by itself."""

MAX_DUE_JOBS_PER_CLAIM = 128
"""Delayed jobs whose time has come that one claim lets into line."""

RESERVATION_MICROSECONDS = 30_000_000
"""A reservation ends this long after the last worker that could serve it has asked."""

ACCOUNT_RETENTION_MICROSECONDS = 60_000_000
"""How long a user who has left is remembered at the least."""

MAX_REMEMBERED_LOADS = 1_000
"""Loads of models of one service that are remembered."""


class Proposal(NamedTuple):
    """A job the index would hand out next, under a token of its own, with a slot number in every
    limited pool it needs."""

    token: str
    entry: Entry
    slots: tuple[Slot, ...]


class Picks(NamedTuple):
    """What a claim found. With nothing found the worker is filed as idle; without a wake-up it
    should look again at `look_again_at`."""

    proposals: list[Proposal]
    look_again_at: int


class HeldEntry(NamedTuple):
    """A proposal that was handed out and not yet freed, as the index remembers it."""

    token: str
    entry: Entry
    slots: tuple[Slot, ...]
    at: int


class ServiceCallRef(NamedTuple):
    """An attempt at a service."""

    service: str
    region: str | None
    token: str


class Freed(NamedTuple):
    """A lease that ended: what it really cost (None = unknown), the slots that stay taken, and the
    service and region that answered its call, well or badly."""

    token: str
    actual: int | None = None
    kept: tuple[Slot, ...] = ()
    answered: tuple[str, str | None] | None = None


class Standing(NamedTuple):
    """Where one job stands. `position` counts from 1 (0 = not in line yet). The job at position n
    would be handed out as the n-th of its service if nothing came or went, no time passed, slots
    were free and every job that starts ended at once; jobs of users who are at their running limit
    now go after all others. The first EXACT_POSITIONS are exact, what comes after them is an
    estimate. `ahead` is how many are expected to start before it, its user's limit aside;
    `behind_own` how many jobs of its own user stand before it."""

    position: int
    level: int
    since: int
    ahead: int
    behind_own: int
    reasons: tuple[str, ...]


class Depth(NamedTuple):
    """One service and tier: how many wait, how many wait for their time, since when the oldest."""

    service: str
    rank: int
    waiting: int
    delayed: int
    oldest: int | None


class PoolUse(NamedTuple):
    pool: str
    limit: int
    held: int


class Stats(NamedTuple):
    """`lanes`: how many are in line in each lane; `delayed`: how many wait for their time in it;
    `oldest`: since when the first in line waits there."""

    depths: list[Depth]
    pools: list[PoolUse]
    breakers: dict[str, CircuitBreaker]
    held: int
    idle: int
    lanes: dict[str, int]
    delayed: dict[str, int]
    oldest: dict[str, int]


class Index(Protocol):
    # --- what waits --------------------------------------------------------------------------
    async def put(self, entries: Sequence[Entry], now: int) -> None:
        """Each is in line at its place, or waits for its time, unless the index knows the same or
        a newer rev. Wakes workers that can run it now or soon."""

    async def take(self, jobs: Sequence[tuple[str, int]]) -> None:
        """These (job, rev) are not in line, unless the index knows a newer rev. Held entries are
        left alone."""

    async def mend(self, seen: Entry, truth: Entry | None, now: int) -> None:
        """If the index still shows exactly `seen`, it now shows `truth`, whatever the revs say."""

    async def announced(self, levels: Sequence[tuple[str, int]]) -> None:
        """The owners of these jobs have been told the rank they count as."""

    # --- handing out -------------------------------------------------------------------------
    async def claim(self, worker: Worker, loaded: Loaded, n: int, now: int, epoch: str) -> Picks:
        """The next n jobs in the order of service that this worker covers, each with all its slots
        or not at all, filed as held. Raises NotReady under another epoch or while loading."""

    async def drop(self, tokens: Sequence[str], now: int) -> None:
        """Proposals that were refused: their slots are free, their jobs are not in line."""

    async def free(self, freed: Sequence[Freed], now: int) -> None:
        """These leases have ended: slots free except those kept, counters corrected, workers woken.
        A probe that ends without an answer lets another one look. A second time changes
        nothing."""

    async def unverified(self, before: int, limit: int) -> list[HeldEntry]:
        """Held entries that nobody has verified since `before`, oldest first."""

    async def verified(self, tokens: Sequence[str], now: int) -> None:
        """The ledger says these run under their tokens."""

    async def wait(self, worker_id: str, until: int) -> None:
        """Returns when there may be something for this idle worker, at `until` at the latest."""

    async def leave(self, worker_id: str) -> None:
        """The worker is not idle any more and must not be woken."""

    async def dismiss(self, worker_id: str) -> None:
        """Every call in which this worker waits returns."""

    # --- services ----------------------------------------------------------------------------
    async def configure(self, catalog: Catalog, settings: int) -> None:
        """Limits and rules from now on, unless it knows newer ones: settings are numbered. What is
        held stays held."""

    async def breaker(self, service: str, region: str | None) -> CircuitBreaker:
        """The circuit breaker that counts failures of this region, or of a service without one."""

    async def unavailable(
        self, call: ServiceCallRef, job: str, now: int, retry_after: int
    ) -> FailureVerdict:
        """The service did not answer. What that means for its circuit breaker and for this job."""

    async def learn_load(self, service: str, model: str, duration: int) -> None:
        """A worker took this long to load the model."""

    # --- looking -----------------------------------------------------------------------------
    async def standing(self, job: str, now: int) -> Standing | None:
        """Where the job stands, or None if the index does not know it as waiting."""

    async def promotable(self, now: int, limit: int) -> list[tuple[str, int]]:
        """Jobs in line that count as a better rank than their owners have been told."""

    async def differing(self, truth: Sequence[Entry]) -> list[tuple[str, Entry | None]]:
        """Waiting jobs that the index does not show like this, held ones aside: (job, shown)."""

    def walk(self, page: int) -> AsyncIterator[list[Entry]]:
        """Everything that waits, page by page, as of when it began."""

    async def stats(self) -> Stats: ...

    async def lanes(self, service: str) -> Mapping[str, int]:
        """The lanes of this service in which jobs wait, and how many, delayed ones too."""

    # --- listeners to jobs -------------------------------------------------------------------
    def notify(self, jobs: Sequence[str]) -> None:
        """These jobs have changed in the ledger: other processes that subscribe to one of them hear
        it once, soon, if the message is not lost. Returns at once, and never fails."""

    def subscribe(self, job: str, changed: Callable[[], None]) -> None:
        """Call this whenever another process may have changed the job; also when the subscription
        has begun or begins again, because earlier messages were not heard."""

    def unsubscribe(self, job: str) -> None:
        """It is not called any more."""

    # --- rebuild -----------------------------------------------------------------------------
    async def serves(self, epoch: str) -> int | None:
        """The number of its settings if claims under this epoch work, with everything that it has
        been told since it began; None if they do not. Raises NotReady if nobody can say."""

    async def begin(self, epoch: str) -> None:
        """Empty and loading. Puts and takes are remembered, claims refused."""

    async def load(self, epoch: str, entries: Sequence[Entry], held: Sequence[HeldEntry]) -> None:
        """A page of live jobs, unless something newer has been heard of them meanwhile. Pages of
        another epoch are ignored."""

    async def load_slots(self, epoch: str, rows: Sequence[tuple[Slot, str]]) -> None:
        """(slot, token) rows of the ledger, unless the token has been freed meanwhile."""

    async def load_starts(self, epoch: str, starts: Sequence[Start]) -> None:
        """Where the ageing clocks stand."""

    async def open(self, epoch: str, now: int) -> bool:
        """Loaded: claims under this epoch work. False if another rebuild has begun meanwhile."""

    async def tidy(self, now: int) -> None:
        """Forget what can no longer matter: called once a minute."""

    async def sync_slots(self, pool: str, rows: Sequence[tuple[Slot, str]], now: int) -> int:
        """The ledger's rows of one pool. Returns how many numbers had to be corrected."""

    async def close(self) -> None:
        """Whatever it holds outside of this process is left in order."""
