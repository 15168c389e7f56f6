"""Typed records of the client SDK: jobs and events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from fairlane.errors import JobCancelled, JobDead, JobFailed

if TYPE_CHECKING:
    from fairlane.responses import (
        AcceptedResponse,
        EtaResponse,
        EventResponse,
        ExecutionResponse,
        InferenceResponse,
        JobPageResponse,
        JobResponse,
        JobSummaryResponse,
        UpdateResponse,
    )

ENDED = frozenset({"completed", "failed", "cancelled", "dead", "expired"})


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request to run a job. Times are seconds; `run_at` is an RFC 3339 time. `timeout` is the
    time limit of one attempt, `max_retries` the number of retries (None = as declared or
    configured), `backoff` the pause before each retry, or a list of pauses of which the last
    repeats. `idempotency_key` makes it safe to submit again from another process; a client that
    repeats its own request is safe anyway. `traceparent` is the caller's W3C trace context:
    services and workers continue its trace. `matrix` makes it a fan-out; with `on_cell_failure`
    "stop" a failed execution ends the others."""

    name: str
    input: Any = None
    user: str | None = None
    priority: str | None = None
    model: str = ""
    duration: float = 0
    regions: Collection[str] = ()
    capabilities: Collection[str] = ()
    timeout: float = 0
    max_retries: int | None = None
    backoff: float | Sequence[float] = ()
    run_at: str | None = None
    max_wait: float = 0
    callback_url: str | None = None
    tags: Collection[str] = ()
    matrix: Mapping[str, Sequence[str]] | None = None
    on_cell_failure: str = ""
    idempotency_key: str | None = None
    traceparent: str | None = None

    def body(self) -> dict[str, Any]:
        sent = {
            "feature_name": self.name,
            "user_id": self.user,
            "priority": self.priority,
            "model": self.model,
            "duration": self.duration,
            "regions": list(self.regions),
            "required_capabilities": sorted(self.capabilities),
            "timeout_seconds": self.timeout,
            "backoff": [self.backoff]
            if isinstance(self.backoff, int | float)
            else list(self.backoff),
            "run_at": self.run_at,
            "max_wait_seconds": self.max_wait,
            "callback_url": self.callback_url,
            "tags": list(self.tags),
            "matrix": None if self.matrix is None else dict(self.matrix),
            "on_cell_failure": self.on_cell_failure,
        }
        given = {name: value for name, value in sent.items() if value not in (None, "", 0, [])}
        if self.max_retries is not None:
            given["max_retries"] = self.max_retries
        if self.input is not None:
            given["input_data"] = self.input
        return given


@dataclass(frozen=True, slots=True)
class Submitted:
    """`position` counts from 1, or is None if it is not known. `eta` is (p50, p90) in seconds."""

    job_id: str
    status: str
    priority: str | None
    position: int | None
    eta: tuple[float, float] | None

    @classmethod
    def read(cls, sent: AcceptedResponse) -> Submitted:
        return cls(
            sent["job_id"], sent["status"], sent["priority"], sent["position"], _eta(sent["eta"])
        )


@dataclass(frozen=True, slots=True)
class Job:
    """`result` is the output of the last step that is no quality check, `context` the outputs of
    all steps, `sent` the whole response of the server."""

    job_id: str
    name: str
    status: str
    user: str | None
    priority: str
    position: int | None
    eta: tuple[float, float] | None
    reason: str | None
    progress: tuple[float, str] | None
    error: tuple[str, str] | None
    context: Mapping[str, Any]
    sent: Mapping[str, Any] = field(repr=False)

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def result(self) -> Any:
        checks = {check["step"] for check in self.sent.get("quality", ())}
        steps = [
            value
            for name, value in self.context.items()
            if not name.endswith("__attempts") and name not in checks
        ]
        return steps[-1]["data"] if steps else None

    @classmethod
    def read(cls, sent: JobSummaryResponse) -> Job:
        """A job of a page has only the fields of a summary."""
        progress, error = sent["progress"], sent["error"]
        more = cast("JobResponse", sent)
        return cls(
            sent["job_id"],
            sent["feature_name"],
            sent["status"],
            sent["user_id"],
            sent["effective_priority"],
            more.get("position"),
            _eta(more.get("eta")),
            more.get("reason"),
            (progress["percent"], progress["text"]) if progress else None,
            (error["code"], error["message"]) if error else None,
            more.get("context", {}),
            sent,
        )

    def result_or_raise(self) -> Any:
        """The result of a job that has ended. Raises JobFailed if it has none."""
        if self.status == "completed":
            return self.result
        kind = {"dead": JobDead, "cancelled": JobCancelled}.get(self.status, JobFailed)
        raise kind(self.job_id, *(self.error or ("", "")))


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of jobs, newest first. `next` is the cursor of the following page, None on the last
    one. These jobs have no position, reason and context: use `get` for those."""

    jobs: list[Job]
    next: str | None

    @classmethod
    def read(cls, sent: JobPageResponse) -> JobPage:
        return cls([Job.read(each) for each in sent["jobs"]], sent["next"])


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a fan-out: its combination of the matrix (`cell`), and its result if it is
    completed. `sent` is the whole response of the server."""

    execution_id: str
    job_id: str
    cell: Mapping[str, str]
    status: str
    region: str | None
    attempts: int
    result: Any
    error: tuple[str, str] | None
    sent: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, sent: ExecutionResponse) -> Execution:
        error = sent["error"]
        return cls(
            sent["execution_id"],
            sent["job_id"],
            sent["cell"],
            sent["status"],
            sent["region"],
            sent["attempts"],
            sent["result"],
            (error["code"], error["message"]) if error else None,
            sent,
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a job that was run on one connection: the output of its last step, the metrics
    of that step, the region of the last attempt, and the attempts of all steps."""

    job_id: str
    data: Any
    metrics: Any
    region: str | None
    attempts: int

    @classmethod
    def read(cls, sent: InferenceResponse) -> RunResult:
        return cls(sent["job_id"], sent["data"], sent["metrics"], sent["region"], sent["attempts"])


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A job to run on one connection. `timeout` is how long the caller waits, in seconds.
    `on_disconnect` "keep" keeps the job if the connection breaks; "cancel" cancels it."""

    name: str
    input: Any = None
    user: str | None = None
    priority: str | None = None
    model: str = ""
    region: str | None = None
    duration: float = 0
    timeout: float = 300
    on_disconnect: str = "cancel"
    callback_url: str | None = None
    tags: Collection[str] = ()
    idempotency_key: str | None = None
    traceparent: str | None = None

    def body(self) -> dict[str, Any]:
        sent = {
            "service": self.name,
            "user_id": self.user,
            "priority": self.priority,
            "model": self.model,
            "region": self.region,
            "duration": self.duration,
            "timeout_seconds": self.timeout,
            "on_disconnect": self.on_disconnect,
            "callback_url": self.callback_url,
            "tags": list(self.tags),
        }
        given = {name: value for name, value in sent.items() if value not in (None, "", 0, [])}
        return given if self.input is None else {**given, "input_data": self.input}


@dataclass(frozen=True, slots=True)
class Event:
    """`seq` is None for `POSITION`, `PROGRESS`, `OUTPUT` and `RESULT`, which are not numbered."""

    seq: int | None
    type: str
    job_id: str
    at: str | None
    message: str
    data: Mapping[str, Any]

    @classmethod
    def read(cls, sent: EventResponse | UpdateResponse) -> Event:
        event = cast("EventResponse", sent)
        return cls(
            event.get("seq"),
            event["type"],
            event["job_id"],
            event.get("at"),
            event.get("message", ""),
            event["data"],
        )


def _eta(sent: EtaResponse | None) -> tuple[float, float] | None:
    return None if sent is None else (sent["p50_seconds"], sent["p90_seconds"])
