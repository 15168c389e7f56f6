"""Schemas of tasks and slots: requests and responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fairlane.api.schemas.requests import (
    BACKOFF,
    IDEMPOTENCY_KEY,
    RETRIES,
    Address,
    Backoff,
    Name,
    RequestModel,
    Retries,
    Seconds,
    Text,
    Time,
    User,
    key_on,
    pauses,
)
from fairlane.api.schemas.responses import ID, EtaResponse, LastError, ProgressResponse
from fairlane.model.job import NewJob
from fairlane.units import SECOND

MAX_WAIT_SECONDS = 60
Word = Literal["queued", "executing", "completed", "failed", "cancelled", "dead_letter"]
Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")]
Names = Annotated[list[Name], Field(max_length=50)]


class TaskRequest(RequestModel):
    """One piece of work for a worker that offers its type and everything it requires."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "task_type": "resize",
                    "priority": "high",
                    "parameters": {"file": "heron.png", "width": 640},
                    "required_capabilities": ["gpu"],
                    "timeout_seconds": 600,
                }
            ]
        },
    )

    task_type: Name
    parameters: Any = None
    priority: Name | None = Field(default=None, description="A tier. Needs `set_priority`.")
    required_capabilities: Names = Field(default_factory=list)
    timeout_seconds: Seconds = Field(
        default=0, description="Of one try; 0 = the worker's, the service's, or the tier's."
    )
    max_retries: Retries | None = Field(default=None, description=RETRIES)
    backoff: Backoff | None = Field(default=None, description=BACKOFF)
    idempotency_key: Annotated[str, Field(pattern=IDEMPOTENCY_KEY)] | None = None
    user_id: User | None = Field(default=None, description="On whose behalf. Needs `act_as`.")
    model: Annotated[str, Field(max_length=100, pattern=r"^[^|\u0000]*$")] = ""
    run_at: Time | None = Field(default=None, description="Not before this time.")
    max_wait_seconds: Seconds = Field(default=0, description="Longest wait; 0 = any.")
    callback_url: Address | None = Field(default=None, description="Where the final state is sent.")
    tags: Annotated[list[Text], Field(max_length=20)] = Field(default_factory=list)

    def new_job(self, key: str | None, trace: str | None) -> NewJob:
        return NewJob(
            self.task_type,
            self.parameters,
            self.user_id,
            self.priority,
            self.model,
            capabilities=tuple(sorted(set(self.required_capabilities))),
            run_at=self.run_at,
            timeout=round(self.timeout_seconds * SECOND),
            max_wait=round(self.max_wait_seconds * SECOND),
            callback=self.callback_url,
            tags=tuple(self.tags),
            trace=trace,
            idempotency_key=key_on("tasks", self.idempotency_key or key),
            max_retries=self.max_retries,
            backoff=pauses(self.backoff),
        )


class TaskAcceptedResponse(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"task_id": ID, "status": "queued", "queue_position": 5}]}
    )

    task_id: str
    status: Word | Literal["expired"]
    queue_position: int | None


class TaskError(BaseModel):
    message: str
    retriable: bool
    code: str


class TaskResponse(BaseModel):
    task_id: str
    task_type: str
    status: Word
    priority: str
    effective_priority: str
    parameters: Any
    required_capabilities: list[str]
    timeout_seconds: float
    retry_count: int
    max_retries: int
    created_at: str
    started_at: str | None
    completed_at: str | None
    execution_time_ms: int | None = Field(description="What its attempts took together.")
    assigned_worker_id: str | None = Field(description="Who runs it, or ran it last.")
    queue_position: int | None
    reason: str | None = Field(description="Why it waits.")
    unrunnable: bool = Field(description="Nobody alive offers what it requires.")
    progress: ProgressResponse | None
    result: Any
    error: TaskError | None
    last_error: LastError | None
    trace_id: str


class TaskStateResponse(BaseModel):
    task_id: str
    status: Word


class TierDepth(BaseModel):
    depth: int
    oldest_age_seconds: float | None


class WorkerCounts(BaseModel):
    active: int
    draining: int
    dead: int
    total_capacity: int
    used_capacity: int


class Throughput(BaseModel):
    completed_last_minute: int
    failed_last_minute: int


class QueueStatsResponse(BaseModel):
    queues: dict[str, TierDepth]
    workers: WorkerCounts
    throughput: Throughput
    unrunnable: int = Field(description="Tasks that no live worker can run.")
    unrunnable_by_type: dict[str, int]


class SlotRequest(RequestModel):
    """A slot of a service that its callers run themselves. With `slot_id`: wait on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"service": "image_gen"}]})

    service: Name
    user_id: User | None = Field(default=None, description="On whose behalf. Needs `act_as`.")
    priority: Name | None = Field(default=None, description="A tier. Needs `set_priority`.")
    model: Annotated[str, Field(max_length=100, pattern=r"^[^|\u0000]*$")] = ""
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)] = 20
    slot_id: Id | None = None
    callback_url: None = None

    def new_job(self, key: str | None, trace: str | None) -> NewJob:
        return NewJob(
            self.service,
            None,
            self.user_id,
            self.priority,
            self.model,
            trace=trace,
            idempotency_key=key_on("slots", key),
        )


class SlotResponse(BaseModel):
    slot_id: str
    status: Literal["queued", "running", "completed", "failed", "cancelled", "dead"]
    lease: str | None = Field(description="The secret that keeps and gives back; null = wait on.")
    lease_seconds: float
    position: int | None
    eta: EtaResponse | None


class SlotRenewedResponse(BaseModel):
    slot_id: str
    lease_seconds: float
