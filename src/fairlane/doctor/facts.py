"""The facts that the checks judge. Each class is one fact group and is read on its own. Times are
microseconds since 1970."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from fairlane.doctor.words import lasts
from fairlane.engine.inspection import Drift, FirstInLine, IndexState, PoolCount
from fairlane.index.index import Stats
from fairlane.ledger.messages import Counts, LiveSlot
from fairlane.ledger.store_stats import StoreServer, StoreSigns
from fairlane.model.catalog import Catalog
from fairlane.model.job import Job
from fairlane.model.key import Key
from fairlane.model.state import State
from fairlane.model.webhook import Delivery, Webhook
from fairlane.model.worker import Worker

Group = TypeVar("Group")


@dataclass(frozen=True, slots=True)
class Here:
    """This process: its version, where it listens, its two clocks, and its settings. `now` is the
    queue's time, `wall_clock` this machine's."""

    version: str
    mode: str
    host: str
    loopback: bool
    now: int
    wall_clock: int
    catalog: Catalog
    called: frozenset[str] = frozenset()
    """Services that a dispatcher calls by HTTP."""
    notes: tuple[str, ...] = ()
    speed: float = 1
    """A simulation runs so many times as fast as it shows."""

    def lasts(self, microseconds: float) -> str:
        """A duration of the queue: in simulated time, if the system is a simulation."""
        return lasts(microseconds * self.speed)


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """The store of the ledger. `outbox_age` is how long this process has seen the oldest outbox row
    (µs), `outbox_rows` how many rows there are, counted up to a limit."""

    server: StoreServer
    signs: StoreSigns = field(default_factory=StoreSigns)
    outbox_age: int = 0
    outbox_rows: int = 0


@dataclass(frozen=True, slots=True)
class IndexAnswer:
    """Whether the index answers at all. The other groups of the index need an answer."""

    answers: bool


@dataclass(frozen=True, slots=True)
class IndexFacts:
    state: IndexState


@dataclass(frozen=True, slots=True)
class LineFacts:
    """The waiting jobs, the pools and the circuit breakers, from the index. `unrunnable` counts the
    waiting jobs of each lane that no live worker covers."""

    stats: Stats
    queued: int
    running: int
    unrunnable: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FrontFacts:
    """The first waiting job of each service that has one, and how many jobs count as a better tier
    than their owners were told."""

    first: Sequence[FirstInLine]
    overtaken: int = 0


@dataclass(frozen=True, slots=True)
class RunningFacts:
    """The running jobs, the taken slots, and the usual duration of each service's jobs in
    seconds."""

    jobs: Sequence[Job]
    slots: Sequence[LiveSlot]
    usual_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Every worker with the time of its last heartbeat. `holds` counts the running jobs by
    worker."""

    workers: Sequence[tuple[Worker, int]]
    holds: Counter[str]


@dataclass(frozen=True, slots=True)
class EndedFacts:
    """The jobs that ended in the last minute, by state, and all dead letters."""

    last_minute: Mapping[State, int]
    dead: int


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """The latest webhooks with their outcomes (None = not over)."""

    latest: Sequence[tuple[Webhook, Delivery | None]]


@dataclass(frozen=True, slots=True)
class KeyFacts:
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """Ended jobs that retention should have deleted, counted up to `limit`."""

    overdue: int
    limit: int


@dataclass(frozen=True, slots=True)
class EventFacts:
    """Whether this process hears of changes by other processes; the jobs with listeners, and how
    many of them get a new position each second."""

    arrive: bool
    listeners: int
    positions_per_second: int


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """When each kind of maintenance round of this process last ended."""

    ended_at: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CeleryFacts:
    """The tasks of balanced Celery queues: (pending, running) by queue. None if there are none."""

    loads: Mapping[str, tuple[int, int]] | None


@dataclass(frozen=True, slots=True)
class AccuracyFacts:
    """What happened in the last 15 minutes. By service: the starts that had an estimate, and how
    many were within its p90. By service and tier: the starts, and how many were within the tier's
    target."""

    estimates: Mapping[str, tuple[int, int]]
    targets: Mapping[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class InvariantFacts:
    counts: Counts


@dataclass(frozen=True, slots=True)
class DriftFacts:
    drift: Drift
    pools: Sequence[PoolCount]


@dataclass(frozen=True, slots=True)
class PortFacts:
    """Before serving: where the server would listen, and why it cannot (empty = it can)."""

    address: str
    problem: str = ""


class NotLooked(NamedTuple):
    """A fact group that could not be read, and why."""

    reason: str


class Unknown(Exception):
    """A check needs a fact group that could not be read."""


class Facts:
    """The fact groups by their class. Reading a group that could not be gathered raises Unknown."""

    def __init__(self, groups: Mapping[type, object]) -> None:
        self._groups = groups

    def __getitem__(self, kind: type[Group]) -> Group:
        found = self._groups.get(kind, NotLooked("not looked at"))
        if isinstance(found, NotLooked):
            raise Unknown(found.reason)
        assert isinstance(found, kind)  # noqa: S101 - the key of the group is its class
        return found

    def __contains__(self, kind: type) -> bool:
        return kind in self._groups

    def all(self) -> Mapping[str, object]:
        """Every group by its name, for the bundle."""
        return {kind.__name__: group for kind, group in self._groups.items()}
