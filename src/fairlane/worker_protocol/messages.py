"""The messages of the worker protocol. Times are microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from fairlane.model.job import Json
from fairlane.model.lease import Lease
from fairlane.model.step import RetryTerms
from fairlane.trace_context import trace_id

Status = Literal["completed", "failed", "released"]


class Ref(NamedTuple):
    """A lease as its worker names it: the task, and the secret that proves it."""

    task: str
    lease: str


class Offer(NamedTuple):
    """What a worker can run. `task_types` none = whatever is pulled and needs no more than its
    capabilities. `tasks` are the terms it declares for its task types."""

    capabilities: frozenset[str] = frozenset()
    capacity: int = 5
    task_types: frozenset[str] | None = None
    region: str | None = None
    tiers: frozenset[str] | None = None
    version: str = ""
    heartbeat: int = 30_000_000
    tasks: Mapping[str, RetryTerms] = MappingProxyType({})


class LoadedModel(NamedTuple):
    """The model a worker has in memory, and how long it took to load if it was just loaded."""

    name: str
    load: int = 0


class PollAsk(NamedTuple):
    """A poll: up to `n` tasks, waiting so many seconds. The same `name` again gets the same leases;
    `first` = it is certainly not sent again. `leases` are those to hear of; none = those that this
    process knows. `confirms` = who asks can say that it lives before it starts."""

    n: int
    wait: float = 20
    name: str = ""
    first: bool = False
    leases: tuple[Ref, ...] | None = None
    model: LoadedModel | None = None
    confirms: bool = False


class Task(NamedTuple):
    """Work under a lease."""

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
    """The caller, or a worker, has set the timeout; it is not just the settings'."""

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
    )


class News(NamedTuple):
    """What a worker hears: new tasks, tasks to stop because they were cancelled or are somebody
    else's by now, and whether to take no more. `confirm` = no task may start before a heartbeat
    with its lease was answered."""

    tasks: tuple[Task, ...] = ()
    cancel: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    drain: bool = False
    confirm: bool = False


class Trouble(NamedTuple):
    """Why a task failed. `code` may name a fault; without one it is retried if `retriable`."""

    message: str = ""
    retriable: bool = True
    code: str = ""


class Result(NamedTuple):
    """How an attempt ended; `released` = untried, back in line without costing an attempt."""

    ref: Ref
    status: Status
    output: Json = None
    metrics: Json = None
    trouble: Trouble = Trouble()


class Verdict(NamedTuple):
    """What became of a result: the state of its task, and a `code` if it was not taken as sent."""

    task: str
    state: str | None
    code: str = ""
    detail: str = ""
