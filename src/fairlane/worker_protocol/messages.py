"""The messages of the worker protocol. Durations and times are in microseconds, except
`PollAsk.wait`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from fairlane.model.job import Json
from fairlane.model.lease import Lease
from fairlane.model.step import RetryTerms
from fairlane.trace_context import trace_id

MAX_TASKS_IN_A_ROW = 1_000_000
"""The most tasks of one model that a worker reports. More make no difference."""

Status = Literal["completed", "failed", "released"]


MAX_OUTPUT_CHUNKS = 1_000
"""Chunks of streamed output in one request."""


class Ref(NamedTuple):
    """A reference to a lease: the task's id and the lease token."""

    task: str
    lease: str


class Offer(NamedTuple):
    """What a worker can run. `task_types` None = every type whose executor is `pull` and whose
    required capabilities the worker has. `tasks` are its retry terms by task type. `name` is shown
    to people; it need not be unique."""

    capabilities: frozenset[str] = frozenset()
    capacity: int = 5
    task_types: frozenset[str] | None = None
    region: str | None = None
    tiers: frozenset[str] | None = None
    version: str = ""
    heartbeat: int = 30_000_000
    tasks: Mapping[str, RetryTerms] = MappingProxyType({})
    name: str = ""


class LoadedModel(NamedTuple):
    """The model a worker has in memory, or is loading. `load` is the load time, or 0 if it was
    loaded before or is reported with a result. `age` is for how long the worker has it (None = the
    worker does not say), and `tasks` how many tasks in a row needed it."""

    name: str
    load: int = 0
    age: int | None = None
    tasks: int = 0


class PollAsk(NamedTuple):
    """A long poll for up to `n` tasks that waits up to `wait` seconds. `name` is its idempotency
    key: the same name again returns the same leases. `first` = the poll is not a retry. `leases`
    are the leases to watch; None = those in this process's lease cache. `confirms` = the worker
    can confirm new leases with a heartbeat before it starts them."""

    n: int
    wait: float
    name: str = ""
    first: bool = False
    leases: tuple[Ref, ...] | None = None
    model: LoadedModel | None = None
    confirms: bool = False


class Task(NamedTuple):
    """A task that was leased to a worker."""

    id: str
    type: str
    parameters: Json
    context: dict[str, Json]
    timeout: int
    trace: str | None
    attempt: int
    model: str
    lease: str
    lease_until: int
    timeout_given: bool = False
    """True if the submit or a worker set the timeout, false if it is from the settings."""
    checked_step: str | None = None
    """For a quality check: the name of the checked output in `context`."""

    @property
    def ref(self) -> Ref:
        return Ref(self.id, self.lease)


def task_of(lease: Lease) -> Task:
    return Task(
        lease.job,
        lease.service,
        lease.input,
        lease.context,
        lease.deadline - lease.started_at,
        trace_id(lease.job, lease.trace),
        lease.attempt,
        lease.model,
        lease.token,
        lease.lease_until,
        lease.at.timeout_given,
        lease.checked_step,
    )


class News(NamedTuple):
    """The response to a poll or a heartbeat: new tasks, the ids of cancelled tasks, the ids of
    tasks whose lease was lost, and whether to drain. `confirm` = the worker may start a task only
    after a heartbeat with its lease was answered."""

    tasks: tuple[Task, ...] = ()
    cancel: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    drain: bool = False
    confirm: bool = False


class Trouble(NamedTuple):
    """Why a task failed. `code` may name a fault. If it names none, `retriable` decides."""

    message: str = ""
    retriable: bool = True
    code: str = ""


class Result(NamedTuple):
    """How an attempt ended. `released` = not started: the task is queued again, and no attempt is
    counted."""

    ref: Ref
    status: Status
    output: Json = None
    metrics: Json = None
    trouble: Trouble = Trouble()


class Verdict(NamedTuple):
    """The outcome of a reported result: the state of its task, and an error `code` if the result
    was refused or changed."""

    task: str
    state: str | None
    code: str = ""
    detail: str = ""
