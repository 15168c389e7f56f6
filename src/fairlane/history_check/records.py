"""The records of a history, one JSON object a line. `kind` names the record; `at` is the time in
seconds since 1970. Every process of a run is on one machine, so all times are of one clock.

Records of the final state need no run: a live ledger alone is a history, too."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

Kind = TypeVar("Kind", bound=tuple[Any, ...])


class HistoryError(Exception):
    """A line is not a record of a history. The message names the line."""


class RunRecord(NamedTuple):
    """The terms of the run: calls at once by service, and the services whose overrun is `strict`.
    `recovery_seconds` is the longest time in which the queue works again after a fault."""

    seed: int
    limits: dict[str, int]
    strict: tuple[str, ...]
    lease_seconds: float
    recovery_seconds: float


class RequestRecord(NamedTuple):
    """A client sends a request. `operation` names what it wants done: a repeated request has the
    same one."""

    id: str
    at: float
    op: str
    operation: str = ""
    job: str = ""


class ResponseRecord(NamedTuple):
    """A client has the answer; status 0 = the connection broke, and the outcome is unknown.
    `accepted` is the job of each operation that was accepted. `state` is the job's state, as the
    answer says. `price` is what was charged."""

    id: str
    at: float
    status: int
    code: str = ""
    accepted: dict[str, str] = {}  # noqa: RUF012 - never changed
    state: str = ""
    price: int = 0


class CallRecord(NamedTuple):
    """A service or a worker begins to work. `process` is the worker's process, which may be killed;
    a service has none. `lease` is a digest of the lease token, if the caller knows it."""

    id: str
    at: float
    service: str
    job: str
    step: int
    attempt: int
    process: str = ""
    lease: str = ""


class CallEndRecord(NamedTuple):
    id: str
    at: float


class ResultRecord(NamedTuple):
    """A worker reported a result, and this is the answer. `code` is empty if it was accepted."""

    at: float
    job: str
    lease: str
    status: str
    code: str = ""


class FaultRecord(NamedTuple):
    id: str
    at: float
    fault: str
    target: str


class FaultEndRecord(NamedTuple):
    id: str
    at: float


class StreamEventRecord(NamedTuple):
    """A subscriber received an event. A stream goes on over reconnects."""

    stream: str
    at: float
    job: str
    seq: int
    type: str


class JobRecord(NamedTuple):
    """A job at the end: its status in the API and in the ledger. `outputs` has the id of the call
    that produced the stored output of each step. `steps` is 0 for the parent of a fan-out. `events`
    is how many events the job has had."""

    id: str
    status: str
    operation: str = ""
    api_status: str = ""
    steps: int = 1
    parent: str = ""
    events: int = 0
    outputs: dict[str, str] = {}  # noqa: RUF012 - never changed


class AttemptRecord(NamedTuple):
    """A lease that has ended. `fence` counts the leases of a job."""

    job: str
    fence: int
    step: int
    number: int
    service: str
    started_at: float
    ended_at: float
    outcome: str
    worker: str = ""
    lease: str = ""


class EventRecord(NamedTuple):
    job: str
    seq: int
    type: str
    step: int = 0


class EntryRecord(NamedTuple):
    """An entry of the credit ledger."""

    operation: str
    account: str
    amount: int


class AccountRecord(NamedTuple):
    name: str
    balance: int


class SlotRecord(NamedTuple):
    """A slot of a service, from the moment the database granted it until it was free again."""

    service: str
    taken_at: float
    freed_at: float | None = None


class SlotsRecord(NamedTuple):
    """The taken slots of a pool, read from the ledger. `final`: after everything has ended."""

    at: float
    pool: str
    held: int
    limit: int
    final: bool = False


class StorageRecord(NamedTuple):
    """The verdict of the store's own check: `PRAGMA integrity_check`, or amcheck."""

    store: str
    ok: bool
    detail: str = ""


class EndRecord(NamedTuple):
    """The last record: the load has ended, and the final state was read whole."""

    at: float


KINDS: dict[str, type[Any]] = {
    "run": RunRecord,
    "request": RequestRecord,
    "response": ResponseRecord,
    "call": CallRecord,
    "call_end": CallEndRecord,
    "result": ResultRecord,
    "fault": FaultRecord,
    "fault_end": FaultEndRecord,
    "stream_event": StreamEventRecord,
    "job": JobRecord,
    "attempt": AttemptRecord,
    "event": EventRecord,
    "entry": EntryRecord,
    "account": AccountRecord,
    "slot": SlotRecord,
    "slots": SlotsRecord,
    "storage": StorageRecord,
    "end": EndRecord,
}


class History:
    """All records of a history, by kind."""

    def __init__(self, records: Iterable[tuple[Any, ...]]) -> None:
        self._by_kind: dict[type[Any], list[Any]] = defaultdict(list)
        for record in records:
            self._by_kind[type(record)].append(record)
        self.jobs = {each.id: each for each in self.of(JobRecord)}
        self.requests = {each.id: each for each in self.of(RequestRecord)}
        self.fault_ends = {each.id: each.at for each in self.of(FaultEndRecord)}
        self.attempts: dict[str, list[AttemptRecord]] = defaultdict(list)
        for attempt in self.of(AttemptRecord):
            self.attempts[attempt.job].append(attempt)
        for attempts in self.attempts.values():
            attempts.sort(key=lambda each: each.fence)
        self.events: dict[str, list[EventRecord]] = defaultdict(list)
        for event in self.of(EventRecord):
            self.events[event.job].append(event)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return self._by_kind[kind]

    @property
    def run(self) -> RunRecord | None:
        return next(iter(self.of(RunRecord)), None)

    @property
    def recovery_seconds(self) -> float:
        return self.run.recovery_seconds if self.run else 0.0

    def answers(self, op: str) -> Iterable[tuple[RequestRecord, ResponseRecord]]:
        """Each answered request of this kind, with its answer."""
        for response in self.of(ResponseRecord):
            request = self.requests.get(response.id)
            if request is not None and request.op == op:
                yield request, response


def read_history(lines: Iterable[str]) -> History:
    return History(_record(number, line) for number, line in enumerate(lines, 1) if line.strip())


def _record(number: int, line: str) -> tuple[Any, ...]:
    try:
        fields = json.loads(line)
        kind = KINDS[fields.pop("kind")]
        if kind is RunRecord:
            fields["strict"] = tuple(fields["strict"])
        record: tuple[Any, ...] = kind(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        known = ", ".join(KINDS)
        raise HistoryError(
            f"line {number} is not a record: {error!r}; known kinds: {known}"
        ) from error
    return record
