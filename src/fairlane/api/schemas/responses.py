"""Response schemas, for the OpenAPI description. `serializers.py` fills them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["queued", "running", "completed", "failed", "cancelled", "dead"]
ID = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"
TIME = "2026-01-31T12:00:00.000Z"


class EtaResponse(BaseModel):
    p50_seconds: float
    p90_seconds: float


class AcceptedResponse(BaseModel):
    """`position` and `eta` are null while they cannot be told at once."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "job_id": ID,
                    "status": "queued",
                    "priority": "medium",
                    "effective_priority": "medium",
                    "position": 3,
                    "eta": {"p50_seconds": 42.0, "p90_seconds": 84.0},
                }
            ]
        }
    )

    job_id: str
    status: Status | Literal["expired"]
    priority: str | None
    effective_priority: str | None
    position: int | None
    eta: EtaResponse | None


class ErrorResponse(BaseModel):
    code: str
    message: str
    resumable: bool


class LastError(BaseModel):
    """Why the last attempt failed, while the job is tried again."""

    code: str | None
    message: str | None
    attempt: int
    at: str


class ProgressResponse(BaseModel):
    percent: float
    text: str


class JobSummary(BaseModel):
    job_id: str
    feature_name: str
    user_id: str | None
    status: Status
    priority: str = Field(description="What its owner has been told it counts as.")
    original_priority: str
    effective_priority: str = Field(description="What it counts as now.")
    current_step_index: int
    total_steps: int
    queued_at: str
    started_at: str | None = Field(description="When it first started.")
    finished_at: str | None
    promoted_at: str | None
    last_progress_at: str | None = Field(
        description="When it last started, ended or reported progress."
    )
    assigned_worker_id: str | None = Field(description="Who runs it, or ran it last.")
    waited_seconds: float
    progress: ProgressResponse | None
    error: ErrorResponse | None
    trace_id: str
    tags: list[str]
    callback_url: str | None


class JobResponse(JobSummary):
    input_data: Any
    context: dict[str, Any] = Field(description="What finished steps have made.")
    execution_time_ms: int | None = Field(description="What its attempts took together.")
    last_error: LastError | None
    position: int | None
    eta: EtaResponse | None
    reason: str | None = Field(description="Why it waits.")


class JobPage(BaseModel):
    jobs: list[JobSummary]
    next: str | None = Field(description="The cursor of the next page; null on the last.")


class BatchItem(BaseModel):
    """`status` is what the job alone would have been answered with."""

    status: int
    job: AcceptedResponse | None = None
    error: dict[str, Any] | None = None


class BatchResponse(BaseModel):
    results: list[BatchItem]


class JobStateResponse(BaseModel):
    job_id: str
    status: Status


class ReasonResponse(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"code": "busy", "text": "image_gen 1/1 busy", "until": None}]
        }
    )

    code: str
    text: str
    until: str | None = Field(description="When it ends at the latest, if that is known.")


class ExplanationResponse(BaseModel):
    job_id: str
    status: Status
    position: int | None
    eta: EtaResponse | None
    reasons: list[ReasonResponse]
    next_promotion_at: str | None
    changes: list[ReasonResponse] = Field(description="What would help.")


class SecondsSavedResponse(BaseModel):
    p50: float
    p90: float


class QuoteResponse(BaseModel):
    price: int
    currency: Literal["aura"]
    balance: int
    seconds_saved: SecondsSavedResponse | None


class SkipResponse(BaseModel):
    job_id: str
    price: int
    balance: int


class BalanceResponse(BaseModel):
    user_id: str
    currency: Literal["aura"]
    balance: int


class ExecutionResponse(BaseModel):
    execution_id: str
    job_id: str
    cell: dict[str, str]
    status: Status
    region: str | None
    attempts: int
    started_at: str | None
    finished_at: str | None
    progress: ProgressResponse | None
    error: ErrorResponse | None
    result: Any


class ExecutionsResponse(BaseModel):
    executions: list[ExecutionResponse]
    next: str | None


class RetryResponse(BaseModel):
    execution_id: str
    status: Status
    retry_count: int


class EventResponse(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "seq": 2,
                    "type": "STEP_START",
                    "job_id": ID,
                    "at": TIME,
                    "message": "Running image_gen (1/1)",
                    "data": {"service": "image_gen", "step": 1, "total": 1},
                }
            ]
        }
    )

    seq: int
    type: str
    job_id: str
    at: str
    message: str
    data: dict[str, Any]


class TicketResponse(BaseModel):
    ticket: str
    expires_at: str


# --- the whole queue -----------------------------------------------------------------------------
class ServiceQueueResponse(BaseModel):
    waiting: int
    retry: int = Field(description="Waiting for a time of their own: retries and delayed starts.")
    running: int
    limit: int
    health: Literal["healthy", "failing", "paused"] = Field(
        description="failing: it does not answer, its circuit breaker is open, and it is probed."
    )
    oldest_age_seconds: float | None


class QueueStatusResponse(BaseModel):
    regions: dict[str, ServiceQueueResponse]
    services: dict[str, ServiceQueueResponse]
    global_retry: int
    providers: dict[str, Any]


class RuntimeStatsResponse(BaseModel):
    main: int
    retry: int
    dead: int


class DeadLetterPage(BaseModel):
    jobs: list[JobSummary]
    total: int
    next: str | None


class AttemptResponse(BaseModel):
    number: int = Field(description="Within its step; one that cost nothing repeats its number.")
    step: int
    worker_id: str
    region: str | None
    started_at: str
    ended_at: str
    outcome: str
    fault: str | None
    message: str | None


class DeadLetterResponse(JobResponse):
    attempts: list[AttemptResponse]


class CountResponse(BaseModel):
    count: int
    more: bool = Field(description="There is more: ask again.")


class ServiceResponse(BaseModel):
    name: str
    executor: str
    limit: int
    rate: int
    waiting: int
    paused: bool
    provider: str | None
    regions: dict[str, int]


class ServicesResponse(BaseModel):
    services: list[ServiceResponse]


class UserResponse(BaseModel):
    user_id: str
    priority: str


class UserView(BaseModel):
    user_id: str
    priority: str | None = Field(description="Null: none is stored for this user.")
    balance: int


class KeyResponse(BaseModel):
    id: str
    name: str
    tenant: str
    role: str
    act_as: bool
    set_priority: bool
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class NewKeyResponse(KeyResponse):
    key: str = Field(description="What its holder sends. Shown this once.")


class KeysResponse(BaseModel):
    keys: list[KeyResponse]
    next: str | None = Field(description="The cursor of the next page; null on the last.")


class SecretsResponse(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"secrets": ["whsec_MfKQ9r8G…"]}]})

    secrets: list[str] = Field(description="Newest first; each signs every webhook.")


class ChangeResponse(BaseModel):
    at: str
    actor: str
    action: str
    target: str
    before: str | None
    after: str | None


class AuditResponse(BaseModel):
    changes: list[ChangeResponse]


class ProblemResponse(BaseModel):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:fairlane:problem:not_found",
                    "title": "Not Found",
                    "status": 404,
                    "detail": f'no job "{ID}"',
                    "instance": f"/api/v1/jobs/{ID}",
                    "code": "not_found",
                    "request_id": "5f0c9f7be3a14d0c",
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
