"""Response bodies of the HTTP API, one TypedDict each. The serializers return them, the OpenAPI
description is generated from them, and the SDK reads them: mypy notices where one of them differs.
Nothing is validated at run time. Times are RFC 3339 in UTC."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from fairlane.model.key import Role
from fairlane.model.state import State
from fairlane.model.worker import WorkerState

TaskStatus = Literal["queued", "executing", "completed", "failed", "cancelled", "dead_letter"]
GenerationStatus = Literal["queued", "processing", "completed", "failed", "cancelled"]


# --- parts of several responses ------------------------------------------------------------------
class EtaResponse(TypedDict):
    p50_seconds: float
    p90_seconds: float


class ErrorResponse(TypedDict):
    code: str
    message: str
    resumable: bool


class LastErrorResponse(TypedDict):
    """Why the last attempt failed, while the job is tried again."""

    code: str | None
    message: str | None
    attempt: int
    at: str


class ProgressResponse(TypedDict):
    percent: float
    text: str


# --- jobs ----------------------------------------------------------------------------------------
class AcceptedResponse(TypedDict):
    """`position` and `eta` are null while they cannot be told at once."""

    job_id: str
    status: State | Literal["expired"]
    priority: str | None
    effective_priority: str | None
    position: int | None
    eta: EtaResponse | None


class JobSummaryResponse(TypedDict):
    job_id: str
    feature_name: str
    user_id: str | None
    status: State
    priority: Annotated[str, Field(description="The tier its owner has been told.")]
    original_priority: str
    effective_priority: Annotated[str, Field(description="The tier it counts as now.")]
    current_step_index: int
    total_steps: int
    queued_at: str
    started_at: Annotated[str | None, Field(description="When it first started.")]
    finished_at: str | None
    promoted_at: str | None
    last_progress_at: Annotated[
        str | None, Field(description="When it last started, ended or reported progress.")
    ]
    assigned_worker_id: Annotated[
        str | None, Field(description="The worker that runs it, or ran it last.")
    ]
    region: Annotated[
        str | None, Field(description="The region in which it runs, or ran last; null without one.")
    ]
    waited_seconds: float
    progress: ProgressResponse | None
    error: ErrorResponse | None
    trace_id: str
    tags: list[str]
    callback_url: str | None


class QualityResponse(TypedDict):
    """The latest verdict of a quality check."""

    step: Annotated[str, Field(description="The name of the check's output in `context`.")]
    checked_step: Annotated[str, Field(description="The name of the checked output.")]
    passed: Annotated[bool | None, Field(description="Null: the check itself failed.")]
    reason: str


class ExecutionCountsResponse(TypedDict):
    total: int
    queued: int
    running: int
    completed: int
    failed: int
    dead: int
    cancelled: int


class JobResponse(JobSummaryResponse):
    input_data: Any
    context: Annotated[dict[str, Any], Field(description="The outputs of the finished steps.")]
    execution_time_ms: Annotated[
        int | None, Field(description="The duration of all attempts together.")
    ]
    last_error: LastErrorResponse | None
    position: int | None
    eta: EtaResponse | None
    reason: Annotated[str | None, Field(description="Why it waits.")]
    quality: Annotated[
        list[QualityResponse], Field(description="The verdicts of its quality checks.")
    ]
    executions: Annotated[
        ExecutionCountsResponse | None,
        Field(description="How many executions of a fan-out are in each state."),
    ]


class JobPageResponse(TypedDict):
    jobs: list[JobSummaryResponse]
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


class BatchResultResponse(TypedDict):
    """`status` is the HTTP status that the job alone would have been answered with. `job` is
    present if it was accepted, `error` if it was refused."""

    status: int
    job: NotRequired[AcceptedResponse]
    error: NotRequired[dict[str, Any]]


class BatchResponse(TypedDict):
    results: Annotated[list[BatchResultResponse], Field(description="In the order of the request.")]


class JobStateResponse(TypedDict):
    job_id: str
    status: State


class ReasonResponse(TypedDict):
    code: str
    text: str
    until: Annotated[str | None, Field(description="When it ends at the latest, if known.")]


class ExplanationResponse(TypedDict):
    job_id: str
    status: State
    position: int | None
    eta: EtaResponse | None
    reasons: Annotated[list[ReasonResponse], Field(description="Why it waits.")]
    next_promotion_at: str | None
    changes: Annotated[list[ReasonResponse], Field(description="What would help.")]


# --- paid skips and credits ----------------------------------------------------------------------
class SecondsSavedResponse(TypedDict):
    p50: float
    p90: float


class QuoteResponse(TypedDict):
    price: int
    currency: str
    balance: int
    seconds_saved: SecondsSavedResponse | None


class SkipResponse(TypedDict):
    job_id: str
    price: int
    balance: int


class BalanceResponse(TypedDict):
    user_id: str
    currency: str
    balance: int


class StatementEntryResponse(TypedDict):
    at: str
    kind: Literal["payment", "refund", "grant", "withdrawal"]
    amount: int
    balance: Annotated[int, Field(description="After this entry.")]
    job_id: Annotated[str | None, Field(description="Of a payment or a refund.")]
    operation_key: Annotated[str | None, Field(description="Of a grant or a withdrawal.")]
    note: str


class StatementResponse(TypedDict):
    user_id: str
    currency: str
    balance: Annotated[int, Field(description="The present balance.")]
    entries: list[StatementEntryResponse]
    next: str | None


# --- executions of a fan-out ---------------------------------------------------------------------
class ExecutionResponse(TypedDict):
    execution_id: str
    job_id: str
    cell: Annotated[dict[str, str], Field(description="Its combination of the matrix.")]
    status: State
    region: str | None
    attempts: int
    started_at: str | None
    finished_at: str | None
    progress: ProgressResponse | None
    error: ErrorResponse | None
    result: Any


class ExecutionPageResponse(TypedDict):
    executions: list[ExecutionResponse]
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


class RetryResponse(TypedDict):
    execution_id: str
    status: State
    retry_count: int


class RetryFailedResponse(TypedDict):
    job_id: str
    status: State
    count: Annotated[int, Field(description="How many executions are queued again.")]


# --- inference -----------------------------------------------------------------------------------
class InferenceResponse(TypedDict):
    """The result of a job that its caller has waited for."""

    job_id: str
    data: Any
    metrics: Any
    region: Annotated[str | None, Field(description="Where the last attempt ran.")]
    attempts: Annotated[int, Field(description="Attempts of all steps together.")]


# --- events --------------------------------------------------------------------------------------
class EventResponse(TypedDict):
    seq: Annotated[int, Field(description="From 1, without a gap.")]
    type: str
    job_id: str
    at: str
    message: str
    data: dict[str, Any]


class UpdateResponse(TypedDict):
    """`POSITION` and `PROGRESS` in a stream of events: they have no number and are not stored."""

    type: Literal["POSITION", "PROGRESS", "PAUSE"]
    job_id: str
    data: Any


class TicketResponse(TypedDict):
    ticket: str
    expires_at: str


# --- status of the queue -------------------------------------------------------------------------
class ServiceStatusResponse(TypedDict):
    waiting: int
    retry: Annotated[
        int,
        Field(
            description="Front retries, and what waits for a time of its own. Of a region: those "
            "that may run only there."
        ),
    ]
    running: int
    limit: int
    health: Annotated[
        Literal["healthy", "failing", "paused"],
        Field(description="failing: its circuit breaker is open, and it is probed."),
    ]
    oldest_age_seconds: float | None


class ProviderStatusResponse(TypedDict):
    running: int
    limit: int


class QueueStatusResponse(TypedDict):
    regions: dict[str, ServiceStatusResponse]
    services: dict[str, ServiceStatusResponse]
    global_retry: Annotated[
        int, Field(description="Like `retry`: those that may run in more than one region.")
    ]
    providers: dict[str, ProviderStatusResponse]


class CeleryQueueResponse(TypedDict):
    name: str
    pending: int
    running: int


class CeleryQueuesResponse(TypedDict):
    """The balanced queues of a Celery app, in the order of their index."""

    queues: list[CeleryQueueResponse]


class ScaleResponse(TypedDict):
    """What an autoscaler needs of one service. `startable` counts the waiting jobs that more
    workers could start now, within every limit. `value` is `running` + `startable`."""

    service: str
    waiting: int
    running: int
    startable: int
    value: int


class TierStatsResponse(TypedDict):
    depth: int
    oldest_age_seconds: float | None


class WorkerStatsResponse(TypedDict):
    active: int
    draining: int
    dead: int
    total_capacity: int
    used_capacity: int


class ThroughputResponse(TypedDict):
    completed_last_minute: int
    failed_last_minute: int


class QueueStatsResponse(TypedDict):
    queues: Annotated[dict[str, TierStatsResponse], Field(description="By tier.")]
    workers: WorkerStatsResponse
    throughput: ThroughputResponse
    unrunnable: Annotated[int, Field(description="Tasks that no live worker can run.")]
    unrunnable_by_type: dict[str, int]


class RuntimeStatsResponse(TypedDict):
    main: Annotated[int, Field(description="Jobs that wait in line.")]
    retry: Annotated[int, Field(description="Jobs that wait for a time of their own.")]
    dead: int


# --- dead letters --------------------------------------------------------------------------------
class DeadLetterPageResponse(JobPageResponse):
    total: int


class AttemptResponse(TypedDict):
    number: Annotated[
        int, Field(description="Within its step; one that cost nothing repeats its number.")
    ]
    step: int
    worker_id: str
    region: str | None
    started_at: str
    ended_at: str
    outcome: str
    fault: str | None
    message: str | None


class AttemptListResponse(TypedDict):
    attempts: list[AttemptResponse]


class DeadLetterResponse(JobResponse):
    attempts: list[AttemptResponse]


class CountResponse(TypedDict):
    count: int
    more: Annotated[bool, Field(description="There is more: send the request again.")]


class ReplayPreviewResponse(TypedDict):
    """What one dead letter would run if it were replayed."""

    job_id: str
    feature_name: str
    user_id: str | None
    service: Annotated[str, Field(description="The service it would call next.")]
    step: int
    regions: Annotated[list[str], Field(description="Where it may run; empty: anywhere.")]
    region: Annotated[str | None, Field(description="Where it ran last.")]
    died_at: str | None
    runnable: Annotated[bool, Field(description="A live worker could run it now.")]


class ReplayResponse(CountResponse):
    would_run: NotRequired[
        Annotated[
            list[ReplayPreviewResponse],
            Field(description="Only of a preview: the first 100, newest first."),
        ]
    ]


# --- administration ------------------------------------------------------------------------------
class ServiceResponse(TypedDict):
    name: str
    executor: str
    limit: int
    rate: int
    waiting: int
    paused: bool
    provider: str | None
    regions: Annotated[dict[str, int], Field(description="The limit of each region.")]


class ServiceListResponse(TypedDict):
    services: list[ServiceResponse]


class ProviderResponse(TypedDict):
    limit: int
    rate: int


class UserTierResponse(TypedDict):
    user_id: str
    priority: str


class UserResponse(TypedDict):
    user_id: str
    priority: Annotated[str | None, Field(description="Null: none is stored for this user.")]
    balance: int


class KeyResponse(TypedDict):
    id: str
    name: str
    tenant: str
    role: Role
    act_as: bool
    set_priority: bool
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class NewKeyResponse(KeyResponse):
    key: Annotated[str, Field(description="The credential. It is shown this once.")]


class KeyListResponse(TypedDict):
    keys: list[KeyResponse]
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


class SecretsResponse(TypedDict):
    secrets: Annotated[list[str], Field(description="Newest first; each signs every webhook.")]


class AuditEntryResponse(TypedDict):
    at: str
    actor: str
    action: str
    target: str
    before: str | None
    after: str | None


class AuditResponse(TypedDict):
    changes: list[AuditEntryResponse]


class FindingResponse(TypedDict):
    """What one check found. Everything that is not `ok` has a figure and a command to paste."""

    check: str
    category: str
    verdict: Literal["ok", "warning", "wrong", "unknown"]
    subject: str
    text: str
    figure: str
    command: str
    page: Annotated[str, Field(description="Where the check is explained.")]


class DoctorResponse(TypedDict):
    findings: list[FindingResponse]
    seconds: float


class BundleResponse(TypedDict):
    versions: dict[str, str]
    settings: dict[str, Any]
    findings: list[FindingResponse]
    facts: dict[str, Any]
    audit: list[dict[str, Any]]
    metrics: str
    log: list[str]


# --- tasks and slots -----------------------------------------------------------------------------
class TaskAcceptedResponse(TypedDict):
    task_id: str
    status: TaskStatus | Literal["expired"]
    queue_position: int | None


class TaskErrorResponse(TypedDict):
    message: str
    retriable: bool
    code: str


class TaskResponse(TypedDict):
    task_id: str
    task_type: str
    status: TaskStatus
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
    execution_time_ms: Annotated[
        int | None, Field(description="The duration of all attempts together.")
    ]
    assigned_worker_id: Annotated[
        str | None, Field(description="The worker that runs it, or ran it last.")
    ]
    queue_position: int | None
    reason: Annotated[str | None, Field(description="Why it waits.")]
    unrunnable: Annotated[bool, Field(description="No live worker offers what it requires.")]
    progress: ProgressResponse | None
    result: Any
    error: TaskErrorResponse | None
    last_error: LastErrorResponse | None
    trace_id: str


class TaskStateResponse(TypedDict):
    task_id: str
    status: TaskStatus


class SlotResponse(TypedDict):
    slot_id: str
    status: State
    lease: Annotated[
        str | None, Field(description="The secret that renews and releases it; null = wait on.")
    ]
    lease_seconds: float
    position: int | None
    eta: EtaResponse | None


class SlotRenewedResponse(TypedDict):
    slot_id: str
    lease_seconds: float


# --- generations ---------------------------------------------------------------------------------
class GenerationAcceptedResponse(TypedDict):
    """`position` and `eta` are null while they cannot be told at once."""

    job_id: str
    status: GenerationStatus | Literal["expired"]
    priority: str | None
    effective_priority: str | None
    position: int | None
    eta: EtaResponse | None


class GenerationSummaryResponse(TypedDict):
    id: str
    user_id: str | None
    status: GenerationStatus
    model: str
    duration: Annotated[float, Field(description="Seconds to generate.")]
    priority: Annotated[str, Field(description="The tier, or `skipped` after a paid skip.")]
    tier: str
    skipped: bool
    skip_cost: Annotated[int | None, Field(description="The credits that were paid for its skip.")]
    progress: str | None
    progress_pct: int
    position: Annotated[
        int | None, Field(description="1 = starts next, 0 = processing; null = ended or unknown.")
    ]
    estimated_wait: Annotated[
        float | None, Field(description="Seconds until it starts (median); null = unknown.")
    ]
    created_at: str
    started_at: str | None
    completed_at: str | None
    error: ErrorResponse | None


class GenerationResponse(GenerationSummaryResponse):
    prompt: Any
    result: Any
    reason: Annotated[str | None, Field(description="Why it waits.")]


class GenerationStateResponse(TypedDict):
    id: str
    status: GenerationStatus


class OwnQueueResponse(TypedDict):
    queue_length: Annotated[int, Field(description="Waiting jobs of all callers.")]
    current_job: Annotated[
        str | None, Field(description="The caller's longest-running job; null = none runs.")
    ]
    jobs: Annotated[
        list[GenerationSummaryResponse],
        Field(description="The caller's jobs: processing ones first, then by position."),
    ]
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


class QueueRowResponse(TypedDict):
    """A job in the queue. What the caller may not know of a job that is not its own is null."""

    id: str | None
    own: bool
    status: GenerationStatus
    model: str | None
    duration: float | None
    priority: Annotated[str, Field(description="The tier, or `skipped` after a paid skip.")]
    skipped: bool
    progress: str | None
    progress_pct: int | None
    position: Annotated[int, Field(description="1 = starts next, 0 = processing.")]


class ServiceQueueResponse(TypedDict):
    service: str
    jobs: Annotated[
        list[QueueRowResponse], Field(description="Processing jobs, then the next ones in order.")
    ]
    total: Annotated[int, Field(description="Processing and waiting jobs of all callers.")]
    not_shown: int


class SchedulerResponse(TypedDict):
    last_model_used: str | None
    batch_count: Annotated[int, Field(description="Jobs of that model that started in a row.")]
    max_batch_size: int
    starvation_timeouts: Annotated[
        dict[str, float], Field(description="By tier: seconds after which a job counts as aged.")
    ]


class LoadedModelResponse(TypedDict):
    """Where a model is loaded: a worker, or a slot of a called service."""

    worker_id: str | None
    slot: str | None
    model: str
    since: str | None
    batch_count: Annotated[int | None, Field(description="Null if another process knows it.")]


class ModelTimesResponse(TypedDict):
    """Learnt from past jobs. Null = not known yet."""

    load_seconds: float | None
    service_seconds: Annotated[float | None, Field(description="Of the work without the load.")]
    loads: Annotated[int, Field(description="Jobs that were started and had to load it.")]


class StatusResponse(TypedDict):
    service: str
    scheduler: SchedulerResponse
    estimated_wait: Annotated[
        dict[str, float | None],
        Field(description="By model: seconds until a new job of the default tier starts (median)."),
    ]
    estimated_wait_by_tier: dict[str, dict[str, float | None]]
    models: dict[str, ModelTimesResponse]
    workers: list[LoadedModelResponse]
    queue_length: Annotated[int, Field(description="Waiting jobs of all services and callers.")]
    running: int


# --- worker protocol -----------------------------------------------------------------------------
class RegisterResponse(TypedDict):
    worker_id: str
    poll_interval_ms: int
    heartbeat_seconds: float
    lease_seconds: float


class LeasedTaskResponse(TypedDict):
    task_id: str
    task_type: str
    parameters: Any
    context: dict[str, Any]
    timeout_seconds: float
    timeout_given: Annotated[
        bool, Field(description="The caller or a worker set the timeout, not the settings.")
    ]
    checked_step: Annotated[
        str | None, Field(description="For a quality check: the checked output in `context`.")
    ]
    trace_id: str | None
    attempt: int
    model: str
    lease: Annotated[str, Field(description="The secret that proves which worker holds it.")]
    lease_expires_at: str


class LeaseNewsResponse(TypedDict):
    cancel: Annotated[list[str], Field(description="Tasks to stop: they were cancelled.")]
    lost: Annotated[list[str], Field(description="Tasks to stop: their leases are gone.")]
    drain: Annotated[bool, Field(description="Take no more; finish what runs.")]


class PollResponse(LeaseNewsResponse):
    tasks: list[LeasedTaskResponse]
    confirm: Annotated[bool, Field(description="Start nothing before a heartbeat with its lease.")]


class HeartbeatResponse(LeaseNewsResponse):
    acknowledged: bool


class ResultResponse(TypedDict):
    """`code` is empty where the result was taken; `http_status` is what it alone would have been
    answered with."""

    task_id: str
    status: TaskStatus | None
    http_status: int
    code: str
    detail: str


class ResultListResponse(TypedDict):
    results: list[ResultResponse]


class AcknowledgedResponse(TypedDict):
    acknowledged: bool


class WorkerResponse(TypedDict):
    worker_id: str
    name: Annotated[str, Field(description="For people; several workers may share it.")]
    status: WorkerState
    capabilities: list[str]
    task_types: list[str] | None
    region: str | None
    regions: Annotated[
        list[str], Field(description="A dispatcher reaches several; a pull worker is in one.")
    ]
    tiers: list[str] | None
    capacity: int
    current_load: int
    current_tasks: Annotated[list[str], Field(description="Those of your own tenant.")]
    last_heartbeat: str
    version: str


class WorkerListResponse(TypedDict):
    workers: list[WorkerResponse]
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


# --- problems ------------------------------------------------------------------------------------
@with_config(ConfigDict(extra="allow"))
class ProblemResponse(TypedDict):
    """Problem details (RFC 9457). Further members depend on `code`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
