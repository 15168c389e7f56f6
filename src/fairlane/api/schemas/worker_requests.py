"""Request schemas (Pydantic) of the worker protocol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.config import JsonDict, JsonValue

from fairlane.api.schemas.requests import (
    BACKOFF,
    EXAMPLE_ID,
    EXAMPLE_LEASE,
    Backoff,
    Name,
    RequestModel,
    Retries,
    Seconds,
    Text,
    pauses,
    whole_number,
)
from fairlane.api.schemas.task_requests import Id, Names, Wait
from fairlane.model.step import RetryTerms
from fairlane.model.worker import WorkerState
from fairlane.units import SECOND
from fairlane.worker_protocol.long_poll import DEFAULT_WAIT_SECONDS
from fairlane.worker_protocol.messages import (
    MAX_OUTPUT_CHUNKS,
    MAX_TASKS_IN_A_ROW,
    LoadedModel,
    Offer,
    PollAsk,
    Ref,
    Result,
    Trouble,
)

MAX_RESULTS_PER_REQUEST = 1_000


Room = Annotated[int, Field(ge=0, le=MAX_RESULTS_PER_REQUEST), BeforeValidator(whole_number)]


class TaskOptions(RequestModel):
    """The retry terms of one task type. A submit may override them."""

    max_retries: Retries | None = Field(default=None, description="Null = as configured.")
    backoff: Backoff | None = Field(default=None, description=BACKOFF)
    timeout_seconds: Seconds = Field(default=0, description="Of one attempt; 0 = as configured.")

    def terms(self) -> RetryTerms:
        return RetryTerms(
            self.max_retries, pauses(self.backoff), round(self.timeout_seconds * SECOND)
        )


class RegisterRequest(RequestModel):
    """A worker's capabilities and limits. Without `task_types` it gets every task type that workers
    pull and whose required capabilities it has."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"capabilities": ["gpu"], "capacity": 5, "task_types": ["resize"]}]
        }
    )

    capabilities: Names = Field(default_factory=list)
    capacity: Annotated[
        int, Field(ge=1, le=MAX_RESULTS_PER_REQUEST), BeforeValidator(whole_number)
    ] = 5
    task_types: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = None
    region: Name | None = None
    tiers: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = None
    version: Text = ""
    name: Annotated[Text, Field(description="Shown to people, for example the host's name.")] = ""
    heartbeat_seconds: Annotated[float, Field(ge=0.5, le=200, allow_inf_nan=False)] = 30
    task_options: Annotated[dict[Name, TaskOptions], Field(max_length=1000)] = Field(
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
            self.name,
        )


class LeaseReference(RequestModel):
    task_id: Id
    lease: Id

    def ref(self) -> Ref:
        return Ref(self.task_id, self.lease)


Leases = Annotated[list[LeaseReference], Field(max_length=MAX_RESULTS_PER_REQUEST)]


class LoadedModelReport(RequestModel):
    loaded: Annotated[str, Field(max_length=100, pattern=r"^[^|\u0000]*$")]
    load_seconds: Seconds = 0
    age_seconds: Seconds | None = None
    tasks: Annotated[int, Field(ge=0, le=MAX_TASKS_IN_A_ROW)] = 0

    def report(self) -> LoadedModel:
        age = None if self.age_seconds is None else round(self.age_seconds * SECOND)
        return LoadedModel(self.loaded, round(self.load_seconds * SECOND), age, self.tasks)


class PollRequest(RequestModel):
    """A long poll for tasks. `leases` are the leases to watch during the poll. `again` is false if
    this `poll_id` was never sent before. `confirms`: if the response says `confirm`, the worker
    sends a heartbeat with the new leases within two seconds, and starts those that are valid."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"available_capacity": 3, "poll_id": "p-1"}]}
    )

    available_capacity: Room
    wait_seconds: Wait = DEFAULT_WAIT_SECONDS
    poll_id: Id | None = None
    again: bool = True
    confirms: bool = False
    leases: Leases | None = None
    model: LoadedModelReport | None = None
    capabilities: Names | None = None

    def ask(self) -> PollAsk:
        return PollAsk(
            self.available_capacity,
            self.wait_seconds,
            self.poll_id or "",
            not self.again,
            None if self.leases is None else tuple(each.ref() for each in self.leases),
            None if self.model is None else self.model.report(),
            self.confirms,
        )


class HeartbeatRequest(RequestModel):
    """A sign of life that renews leases. Without `leases` it renews all leases of the worker."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"current_load": 3, "status": "active"}]}
    )

    current_load: Room = 0
    status: Literal["active", "draining", "dead"] = "active"
    leases: Leases | None = None

    @property
    def state(self) -> WorkerState:
        return WorkerState(self.status)


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
    """One result, or several in `results`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "task_id": EXAMPLE_ID,
                    "lease": EXAMPLE_LEASE,
                    "status": "completed",
                    "result": {"ok": True},
                }
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


class OutputRequest(RequestModel):
    """Pieces of streamed output. `first` is the number of the first one, from 0 on within an
    attempt."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "task_id": EXAMPLE_ID,
                    "lease": EXAMPLE_LEASE,
                    "first": 0,
                    "chunks": ["To keep", " warm."],
                }
            ]
        }
    )

    task_id: Id
    lease: Id
    first: Annotated[int, Field(ge=0, le=2**53)] = 0
    chunks: Annotated[list[Any], Field(min_length=1, max_length=MAX_OUTPUT_CHUNKS)]

    def ref(self) -> Ref:
        return Ref(self.task_id, self.lease)


class ProgressRequest(RequestModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "task_id": EXAMPLE_ID,
                    "lease": EXAMPLE_LEASE,
                    "percent": 40,
                    "text": "2 of 5 pages",
                }
            ]
        }
    )

    task_id: Id
    lease: Id
    percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
    text: Text = ""

    def ref(self) -> Ref:
        return Ref(self.task_id, self.lease)
