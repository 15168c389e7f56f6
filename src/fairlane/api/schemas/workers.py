"""Schemas of the worker protocol: requests and responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.config import JsonDict, JsonValue

from fairlane.api.schemas.requests import (
    BACKOFF,
    Backoff,
    Name,
    RequestModel,
    Retries,
    Seconds,
    Text,
    pauses,
)
from fairlane.api.schemas.responses import ID, TIME
from fairlane.api.schemas.tasks import MAX_WAIT_SECONDS, Id, Names, Word
from fairlane.model.step import RetryTerms
from fairlane.model.worker import WorkerState
from fairlane.units import SECOND
from fairlane.worker_protocol.messages import LoadedModel, Offer, PollAsk, Ref, Result, Trouble

MAX_RESULTS_PER_REQUEST = 1_000


def _whole(value: Any) -> Any:
    """2.0 is a whole number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Room = Annotated[int, Field(ge=0, le=MAX_RESULTS_PER_REQUEST), BeforeValidator(_whole)]


class TaskTerms(RequestModel):
    """For one task type: what holds unless a submit says otherwise."""

    max_retries: Retries | None = Field(default=None, description="Null = as configured.")
    backoff: Backoff | None = Field(default=None, description=BACKOFF)
    timeout_seconds: Seconds = Field(default=0, description="Of one try; 0 = as configured.")

    def terms(self) -> RetryTerms:
        return RetryTerms(
            self.max_retries, pauses(self.backoff), round(self.timeout_seconds * SECOND)
        )


class RegisterRequest(RequestModel):
    """Without `task_types` it gets whatever is pulled and requires no more than its
    capabilities."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"capabilities": ["gpu"], "capacity": 5, "task_types": ["resize"]}]
        }
    )

    capabilities: Names = Field(default_factory=list)
    capacity: Annotated[int, Field(ge=1, le=MAX_RESULTS_PER_REQUEST), BeforeValidator(_whole)] = 5
    task_types: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = None
    region: Name | None = None
    tiers: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = None
    version: Text = ""
    heartbeat_seconds: Annotated[float, Field(ge=0.5, le=200, allow_inf_nan=False)] = 30
    task_options: Annotated[dict[Name, TaskTerms], Field(max_length=1000)] = Field(
        default_factory=dict, description="Retries and timeout of its task types, by their names."
    )

    def offer(self) -> Offer:
        return Offer(
            frozenset(self.capabilities),
            self.capacity,
            None if self.task_types is None else frozenset(self.task_types),
            self.region,
            None if self.tiers is None else frozenset(self.tiers),
            self.version,
            round(self.heartbeat_seconds * SECOND),
            {name: each.terms() for name, each in self.task_options.items()},
        )


class RegisterResponse(BaseModel):
    worker_id: str
    poll_interval_ms: int
    heartbeat_seconds: float
    lease_seconds: float


class LeaseName(RequestModel):
    task_id: Id
    lease: Id

    def ref(self) -> Ref:
        return Ref(self.task_id, self.lease)


Leases = Annotated[list[LeaseName], Field(max_length=MAX_RESULTS_PER_REQUEST)]


class ModelState(RequestModel):
    loaded: Annotated[str, Field(max_length=100, pattern=r"^[^|\u0000]*$")]
    load_seconds: Seconds = 0


class PollRequest(RequestModel):
    """`leases` are those it wants to hear of while it waits. `again` false says that this
    `poll_id` was never sent before. `confirms`: if the answer says `confirm`, the worker
    sends a heartbeat with the new leases, and starts what still holds, within two seconds."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"available_capacity": 3, "poll_id": "p-1"}]}
    )

    available_capacity: Room
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)] = 20
    poll_id: Id | None = None
    again: bool = True
    confirms: bool = False
    leases: Leases | None = None
    model: ModelState | None = None
    capabilities: Names | None = None

    def ask(self) -> PollAsk:
        model = None
        if self.model is not None:
            model = LoadedModel(self.model.loaded, round(self.model.load_seconds * SECOND))
        return PollAsk(
            self.available_capacity,
            self.wait_seconds,
            self.poll_id or "",
            not self.again,
            None if self.leases is None else tuple(each.ref() for each in self.leases),
            model,
            self.confirms,
        )


class WorkerTask(BaseModel):
    task_id: str
    task_type: str
    parameters: Any
    context: dict[str, Any]
    timeout_seconds: float
    timeout_given: bool = Field(description="By the caller or a worker, not by the settings.")
    trace_id: str | None
    attempt: int
    model: str
    lease: str = Field(description="The secret that proves who holds it.")
    lease_expires_at: str


class PollResponse(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "tasks": [
                        {
                            "task_id": ID,
                            "task_type": "resize",
                            "parameters": {"width": 640},
                            "context": {},
                            "timeout_seconds": 600.0,
                            "timeout_given": False,
                            "trace_id": None,
                            "attempt": 1,
                            "model": "",
                            "lease": "…",
                            "lease_expires_at": TIME,
                        }
                    ],
                    "cancel": [],
                    "lost": [],
                    "drain": False,
                    "confirm": False,
                }
            ]
        }
    )

    tasks: list[WorkerTask]
    cancel: list[str] = Field(description="Tasks to stop: they were cancelled.")
    lost: list[str] = Field(description="Tasks to stop: their leases are gone.")
    drain: bool = Field(description="Take no more; finish what runs.")
    confirm: bool = Field(description="Start nothing before a heartbeat with its lease.")


class HeartbeatRequest(RequestModel):
    """Without `leases` everything the worker holds goes on."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"current_load": 3, "status": "active"}]}
    )

    current_load: Room = 0
    status: Literal["active", "draining", "dead"] = "active"
    leases: Leases | None = None

    @property
    def state(self) -> WorkerState:
        return WorkerState(self.status)


class HeartbeatResponse(BaseModel):
    acknowledged: bool
    cancel: list[str]
    lost: list[str]
    drain: bool


class ErrorReport(RequestModel):
    message: Annotated[str, Field(max_length=100_000)] = ""
    retriable: bool = True
    code: Annotated[str, Field(max_length=100)] = ""


class TaskResult(RequestModel):
    task_id: Id
    lease: Id
    status: Literal["completed", "failed", "released"]
    result: Any = None
    metrics: Any = None
    error: ErrorReport | None = None

    def given(self) -> Result:
        error = self.error or ErrorReport()
        return Result(
            Ref(self.task_id, self.lease),
            self.status,
            self.result,
            self.metrics,
            Trouble(error.message, error.retriable, error.code),
        )


ALONE = ("task_id", "lease", "status")
NULL: JsonDict = {"type": "null"}
ARRAY: JsonDict = {"type": "array"}


def _all(kind: str) -> dict[str, JsonValue]:
    return {name: {"type": kind} for name in ALONE}


class ResultRequest(RequestModel):
    """One result, or many as `results`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"task_id": ID, "lease": "…", "status": "completed", "result": {"ok": True}}
            ],
            "oneOf": [
                {"required": [*ALONE], "properties": {**_all("string"), "results": NULL}},
                {"required": ["results"], "properties": {**_all("null"), "results": ARRAY}},
            ],
        }
    )

    task_id: Id | None = None
    lease: Id | None = None
    status: Literal["completed", "failed", "released"] | None = None
    result: Any = None
    metrics: Any = None
    error: ErrorReport | None = None
    results: (
        Annotated[list[TaskResult], Field(min_length=1, max_length=MAX_RESULTS_PER_REQUEST)] | None
    ) = None

    @model_validator(mode="after")
    def _is_one_or_many(self) -> ResultRequest:
        alone = (self.task_id, self.lease, self.status)
        if self.results is None and None in alone:
            raise ValueError("task_id, lease and status are needed, or results")
        if self.results is not None and alone != (None, None, None):
            raise ValueError("send one result, or results, not both")
        return self

    def given(self) -> list[Result]:
        if self.results is not None:
            return [each.given() for each in self.results]
        alone = self.model_dump(exclude={"results"})
        return [TaskResult.model_validate(alone).given()]


class ResultVerdict(BaseModel):
    """`code` is empty where the result was taken; `http_status` is what it alone would have been
    answered with."""

    task_id: str
    status: Word | None
    http_status: int
    code: str
    detail: str


class ResultsResponse(BaseModel):
    results: list[ResultVerdict]


class ProgressRequest(RequestModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"task_id": ID, "lease": "…", "percent": 40, "text": "2 of 5 pages"}]
        }
    )

    task_id: Id
    lease: Id
    percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
    text: Text = ""

    def ref(self) -> Ref:
        return Ref(self.task_id, self.lease)


class ProgressResponseBody(BaseModel):
    acknowledged: bool


class WorkerView(BaseModel):
    worker_id: str
    status: Literal["active", "draining", "dead"]
    capabilities: list[str]
    task_types: list[str] | None
    region: str | None
    tiers: list[str] | None
    capacity: int
    current_load: int
    current_tasks: list[str] = Field(description="Those of your own tenant.")
    last_heartbeat: str
    version: str


class Workers(BaseModel):
    workers: list[WorkerView]
    next: str | None = Field(description="The cursor of the next page; null on the last.")
