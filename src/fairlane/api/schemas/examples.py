"""Examples of responses for the OpenAPI description. Serializers build most of them, so that a new
field appears automatically. mypy and a test check the others."""

from __future__ import annotations

from typing import Any

import orjson

from fairlane.api.http.problem_details import ProblemDetails, no_job, problem_body, problem_of
from fairlane.api.schemas import generation, serializers
from fairlane.api.schemas.requests import EXAMPLE_ID, EXAMPLE_LEASE
from fairlane.api.schemas.timestamps import iso, microseconds
from fairlane.engine.queries import JobDetail, Placement, WaitReason
from fairlane.errors import (
    Expired,
    InsufficientCredits,
    InvalidInput,
    JobDead,
    NotReady,
    Refused,
    WrongState,
)
from fairlane.ledger.statement import StatementEntry
from fairlane.model.attempt import Attempt, Fault, Outcome
from fairlane.model.event import Event, EventType, place
from fairlane.model.job import Error, Job, Progress
from fairlane.model.key import Key, Role
from fairlane.model.service import Executor, Region, Service
from fairlane.model.state import Code, Move, State
from fairlane.model.step import Lane, Step, context_name
from fairlane.model.worker import WorkerState
from fairlane.policy.eta_calibration import Eta
from fairlane.responses import (
    AcceptedResponse,
    AcknowledgedResponse,
    AttemptListResponse,
    AuditResponse,
    BalanceResponse,
    BatchResponse,
    BundleResponse,
    CeleryQueuesResponse,
    CountResponse,
    DeadLetterPageResponse,
    DeadLetterResponse,
    DoctorResponse,
    EventResponse,
    ExecutionPageResponse,
    ExecutionResponse,
    ExplanationResponse,
    GenerationAcceptedResponse,
    GenerationResponse,
    GenerationStateResponse,
    HeartbeatResponse,
    InferenceResponse,
    JobPageResponse,
    JobResponse,
    JobStateResponse,
    KeyListResponse,
    KeyResponse,
    NewKeyResponse,
    OwnQueueResponse,
    PollResponse,
    ProviderResponse,
    QueueStatsResponse,
    QueueStatusResponse,
    QuoteResponse,
    RegisterResponse,
    ReplayResponse,
    ResultListResponse,
    RetryFailedResponse,
    RetryResponse,
    RuntimeStatsResponse,
    ScaleResponse,
    SecretsResponse,
    ServiceListResponse,
    ServiceQueueResponse,
    ServiceResponse,
    ServiceStatusResponse,
    SkipResponse,
    SlotRenewedResponse,
    SlotResponse,
    StatementResponse,
    StatusResponse,
    TaskAcceptedResponse,
    TaskResponse,
    TaskStateResponse,
    TicketResponse,
    UserResponse,
    UserTierResponse,
    WorkerListResponse,
    WorkerResponse,
)
from fairlane.units import SECOND

CREATED_AT = microseconds("2026-01-31T12:00:00Z")
STARTED_AT = CREATED_AT + 20 * SECOND
NOW = CREATED_AT + 42 * SECOND
WORKER_ID = "018f4c1e-8a10-7b2c-8d3e-4f5061728394"
EXECUTION_ID = "018f4c1e-7d2b-7a01-8c3d-2e4f60718293"
CURSOR = "WyIwMThmNGMxZSJd.5b1c0f4e"
ETA = Eta(42 * SECOND, 84 * SECOND)


def _step(service: str, executor: Executor, capabilities: tuple[str, ...] = ()) -> Step:
    return Step(service, executor, Lane(service, (), capabilities).name, 600 * SECOND, 4)


def _job(state: State, **known: Any) -> Job:
    """Returns a job of two steps. Fields that are not named are None."""
    plan = (_step("text_enhance", Executor.HTTP), _step("image_gen", Executor.HTTP))
    values: dict[str, Any] = {
        "id": EXAMPLE_ID,
        "tenant": "shop",
        "user": "ada",
        "name": "full_pipeline",
        "state": state,
        "plan": plan,
        "step": 0,
        "tier": "medium",
        "level": "medium",
        "attempt": 0,
        "cells": 0,
        "timeout": 600 * SECOND,
        "fence": 0,
        "waited": 0,
        "created_at": CREATED_AT,
        "tags": ("launch",),
    }
    return Job(**{**dict.fromkeys(Job._fields), **values, **known})


def _detail(job: Job, **known: Any) -> JobDetail:
    values: dict[str, Any] = {
        "input": {"prompt": "a heron at dawn"},
        "context": {},
        "waited": 20 * SECOND,
        "effective_tier": job.level,
        "reasons": (),
        "started_at": job.started_at,
        "quality": (),
    }
    return JobDetail(**{**dict.fromkeys(JobDetail._fields), "job": job, **values, **known})


FAILED_ATTEMPT = Attempt(
    EXAMPLE_ID,
    4,
    1,
    4,
    WORKER_ID,
    None,
    STARTED_AT,
    NOW,
    Outcome.FAILED,
    Fault.TRANSIENT,
    "the service answered 500",
)
RUNNING_JOB = _job(
    State.RUNNING,
    step=1,
    attempt=1,
    fence=2,
    worker=WORKER_ID,
    started_at=STARTED_AT,
    waited=20 * SECOND,
    progress=Progress(40.0, "2 of 5 pages", NOW),
)
DEAD_JOB = RUNNING_JOB._replace(
    state=State.DEAD,
    attempt=4,
    fence=5,
    finished_at=NOW,
    error=Error(Code.MAX_ATTEMPTS, "the service answered 500"),
    progress=None,
)
CONTEXT = {context_name(0, "text_enhance"): {"data": {"prompt": "a grey heron at dawn, mist"}}}

# --- jobs ----------------------------------------------------------------------------------------
ACCEPTED: AcceptedResponse = serializers.accepted(EXAMPLE_ID, Placement("medium", "medium", 3, ETA))
BATCH: BatchResponse = {
    "results": [
        {
            "status": 202,
            "job": serializers.accepted(EXAMPLE_ID, Placement("medium", "medium", None, None)),
        },
        {
            "status": 422,
            "error": {
                "code": "unknown_name",
                "detail": 'unknown feature "full_pipelin"; known: full_pipeline, image_gen',
            },
        },
    ]
}
JOB: JobResponse = serializers.view(
    _detail(RUNNING_JOB, context=CONTEXT, execution_time=12 * SECOND)
)
JOB_PAGE: JobPageResponse = {"jobs": [serializers.job(RUNNING_JOB)], "next": CURSOR}
CANCELLED: JobStateResponse = {"job_id": EXAMPLE_ID, "status": State.CANCELLED}
QUEUED_AGAIN: JobStateResponse = {"job_id": EXAMPLE_ID, "status": State.QUEUED}
EXPLANATION: ExplanationResponse = {
    "job_id": EXAMPLE_ID,
    "status": State.QUEUED,
    "position": 3,
    "eta": serializers.eta(ETA),
    "reasons": [serializers.reason(WaitReason("busy", "image_gen 1/1 busy"))],
    "next_promotion_at": iso(CREATED_AT + 300 * SECOND),
    "changes": [
        serializers.reason(WaitReason("busy", "a higher limit: PUT /admin/services/image_gen"))
    ],
}
TICKET: TicketResponse = {
    "ticket": "WyJlMDEyIiwiZmwwMTIzIl0.7c9d2e1f",
    "expires_at": iso(NOW + 30 * SECOND),
}
EVENTS: list[EventResponse] = [
    serializers.event(
        Event(1, EventType.WAITING, EXAMPLE_ID, CREATED_AT, place("image_gen", 0, 1))
    ),
    serializers.event(
        Event(2, EventType.STEP_START, EXAMPLE_ID, STARTED_AT, place("image_gen", 0, 1))
    ),
]
EVENT_STREAM = (
    "retry: 1000\n\n"
    "id: 1\nevent: WAITING\n"
    f'data: {{"seq":1,"type":"WAITING","job_id":"{EXAMPLE_ID}","at":"{iso(CREATED_AT)}",'
    '"message":"Waiting for image_gen (1/1)","data":{"service":"image_gen","step":1,"total":1}}\n\n'
    "event: POSITION\n"
    f'data: {{"type":"POSITION","job_id":"{EXAMPLE_ID}","data":{{"position":3,"eta":null}}}}\n\n'
)

# --- executions of a fan-out ---------------------------------------------------------------------
EXECUTION: ExecutionResponse = serializers.execution(
    _job(
        State.COMPLETED,
        id=EXECUTION_ID,
        plan=(_step("image_gen", Executor.HTTP),),
        parent=EXAMPLE_ID,
        cell={"model": "flux", "prompt": "a heron"},
        region="EU",
        fence=1,
        started_at=STARTED_AT,
        finished_at=NOW,
    ),
    {context_name(0, "image_gen"): {"data": {"url": "https://cdn.example/heron.png"}}},
)
JOB_RESULT = {"url": "https://cdn.example/heron.png"}
EXECUTION_PAGE: ExecutionPageResponse = {"executions": [EXECUTION], "next": None}
EXECUTION_CSV = (
    "execution_id,job_id,model,prompt,status,region,attempts,result\r\n"
    f"{EXECUTION_ID},{EXAMPLE_ID},flux,a heron,completed,EU,1,"
    '"{""url"":""https://cdn.example/heron.png""}"\r\n'
)
RETRIED_FAILED: RetryFailedResponse = {
    "job_id": EXAMPLE_ID,
    "status": State.RUNNING,
    "count": 3,
}
RETRIED: RetryResponse = {
    "execution_id": EXECUTION_ID,
    "status": State.QUEUED,
    "retry_count": 4,
}

# --- inference -----------------------------------------------------------------------------------
INFERENCE: InferenceResponse = {
    "job_id": EXAMPLE_ID,
    "data": {"text": "To keep warm."},
    "metrics": {"tokens": 4},
    "region": "EU",
    "attempts": 1,
}


def _part(kind: str, data: object) -> str:
    body = {"type": kind, "job_id": EXAMPLE_ID, "data": data}
    return f"event: {kind}\ndata: {orjson.dumps(body).decode()}\n\n"


INFERENCE_STREAM = (
    _part("POSITION", {"position": 3, "eta": serializers.eta(ETA)})
    + _part("PROGRESS", {"percent": 40.0, "text": "writing"})
    + _part(
        "OUTPUT",
        {
            "step": 0,
            "service": "fast_chat_llm",
            "attempt": 1,
            "number": 0,
            "dropped": 0,
            "output": "To keep",
        },
    )
    + _part("RESULT", INFERENCE)
)

# --- paid skips and credits ----------------------------------------------------------------------
QUOTE: QuoteResponse = {
    "price": 5,
    "currency": "aura",
    "balance": 20,
    "seconds_saved": {"p50": 42.0, "p90": 84.0},
}
SKIPPED: SkipResponse = {"job_id": EXAMPLE_ID, "price": 5, "balance": 15}
BALANCE: BalanceResponse = {"user_id": "ada", "currency": "aura", "balance": 20}
STATEMENT: StatementResponse = {
    "user_id": "ada",
    "currency": "aura",
    "balance": 15,
    "entries": [
        serializers.statement_entry(each)
        for each in (
            StatementEntry(NOW, "payment", -5, 15, EXAMPLE_ID, None, f"skip of {EXAMPLE_ID}"),
            StatementEntry(CREATED_AT, "grant", 20, 20, None, "invoice-7", "bought"),
        )
    ],
    "next": None,
}
STATEMENT_CSV = (
    "at,kind,amount,balance,job_id,operation_key,note\r\n"
    f"{iso(NOW)},payment,-5,15,{EXAMPLE_ID},,skip of {EXAMPLE_ID}\r\n"
    f"{iso(CREATED_AT)},grant,20,20,,invoice-7,bought\r\n"
)

# --- status of the queue -------------------------------------------------------------------------
SERVICE_STATUS: ServiceStatusResponse = {
    "waiting": 12,
    "retry": 1,
    "running": 1,
    "limit": 1,
    "health": "healthy",
    "oldest_age_seconds": 42.0,
}
QUEUE_STATUS: QueueStatusResponse = {
    "regions": {"EU": SERVICE_STATUS},
    "services": {"image_gen": SERVICE_STATUS},
    "global_retry": 1,
    "providers": {"modal": {"running": 1, "limit": 10}},
}
CELERY_QUEUES: CeleryQueuesResponse = {"queues": [{"name": "queue_0", "pending": 3, "running": 1}]}
SCALE: ScaleResponse = {
    "service": "image_gen",
    "waiting": 12,
    "running": 3,
    "startable": 1,
    "value": 4,
}
QUEUE_STATS: QueueStatsResponse = {
    "queues": {
        "high": {"depth": 0, "oldest_age_seconds": None},
        "medium": {"depth": 12, "oldest_age_seconds": 42.0},
    },
    "workers": {
        "active": 2,
        "draining": 0,
        "dead": 0,
        "total_capacity": 10,
        "used_capacity": 3,
    },
    "throughput": {"completed_last_minute": 30, "failed_last_minute": 1},
    "unrunnable": 4,
    "unrunnable_by_type": {"transcribe": 4},
}
METRICS = (
    "# HELP fairlane_queue_depth Jobs that wait, by tier.\n"
    "# TYPE fairlane_queue_depth gauge\n"
    'fairlane_queue_depth{tier="medium"} 12\n'
)
RUNTIME_STATS: RuntimeStatsResponse = {"main": 12, "retry": 1, "dead": 2}

# --- dead letters --------------------------------------------------------------------------------
DEAD_LETTER_PAGE: DeadLetterPageResponse = {
    "jobs": [serializers.job(DEAD_JOB)],
    "next": None,
    "total": 1,
}
DEAD_LETTER: DeadLetterResponse = {
    **serializers.view(_detail(DEAD_JOB, context=CONTEXT, execution_time=22 * SECOND)),
    "attempts": [serializers.attempt(FAILED_ATTEMPT)],
}
COUNT: CountResponse = {"count": 1000, "more": True}
ATTEMPTS: AttemptListResponse = {"attempts": [serializers.attempt(FAILED_ATTEMPT)]}
REPLAY: ReplayResponse = {
    "count": 1,
    "more": False,
    "would_run": [
        {
            "job_id": DEAD_JOB.id,
            "feature_name": DEAD_JOB.name,
            "user_id": DEAD_JOB.user,
            "service": DEAD_JOB.current.service,
            "step": DEAD_JOB.step,
            "regions": [],
            "region": DEAD_JOB.region,
            "died_at": iso(NOW),
            "runnable": True,
        }
    ],
}

# --- administration ------------------------------------------------------------------------------
SERVICE: ServiceResponse = serializers.service(
    Service("image_gen", limit=2, provider="modal", regions={"EU": Region("EU", 2)})
)
SERVICES: ServiceListResponse = {"services": [SERVICE]}
PROVIDER: ProviderResponse = {"limit": 4, "rate": 60}
USER: UserResponse = {"user_id": "ada", "priority": "high", "balance": 20}
USER_TIER: UserTierResponse = {"user_id": "ada", "priority": "high"}
KEY: KeyResponse = serializers.key(
    Key("fl0123456789abcdef", "shop", Role.CLIENT, "", "web shop", created_at=CREATED_AT)
)
REVOKED_KEY: KeyResponse = {**KEY, "revoked_at": iso(NOW)}
NEW_KEY: NewKeyResponse = {**KEY, "key": "fl0123456789abcdef.s3cr3t"}
KEYS: KeyListResponse = {"keys": [KEY], "next": None}
SECRETS: SecretsResponse = {"secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}
AUDIT: AuditResponse = {
    "changes": [
        {
            "at": iso(NOW),
            "actor": "fl0123456789abcdef",
            "action": "set",
            "target": "services.image_gen.limit",
            "before": "1",
            "after": "2",
        }
    ]
}

DOCTOR: DoctorResponse = {
    "findings": [
        {
            "check": "paused",
            "category": "services",
            "verdict": "warning",
            "subject": "image_gen",
            "text": "image_gen is paused and 12 jobs wait",
            "figure": "12",
            "command": "fairlane services unpause image_gen",
            "page": "/docs/checks#paused",
        }
    ],
    "seconds": 0.412,
}
DOCTOR_JOB: DoctorResponse = {
    "findings": [
        {
            "check": "job",
            "category": "job",
            "verdict": "ok",
            "subject": EXAMPLE_ID,
            "text": "3 ahead of you",
            "figure": "position 4",
            "command": f"fairlane jobs explain {EXAMPLE_ID}",
            "page": "/docs/checks#job",
        }
    ],
    "seconds": 0.021,
}
BUNDLE: BundleResponse = {
    "versions": {"fairlane": "0.1.0", "python": "3.12.3"},
    "settings": {"mode": "embedded"},
    "findings": DOCTOR["findings"],
    "facts": {"LedgerFacts": {"outbox_rows": 0}},
    "audit": [],
    "metrics": "",
    "log": [],
}

# --- tasks and slots -----------------------------------------------------------------------------
TASK_ACCEPTED: TaskAcceptedResponse = {
    "task_id": EXAMPLE_ID,
    "status": "queued",
    "queue_position": 5,
}
TASK: TaskResponse = serializers.task(
    _detail(
        RUNNING_JOB._replace(
            name="resize", plan=(_step("resize", Executor.PULL, ("gpu",)),), step=0
        ),
        input={"file": "heron.png", "width": 640},
    ),
    unrunnable=False,
)
TASK_CANCELLED: TaskStateResponse = {"task_id": EXAMPLE_ID, "status": "cancelled"}
SLOT: SlotResponse = {
    "slot_id": EXAMPLE_ID,
    "status": State.RUNNING,
    "lease": EXAMPLE_LEASE,
    "lease_seconds": 15.0,
    "position": None,
    "eta": None,
}
SLOT_RENEWED: SlotRenewedResponse = {"slot_id": EXAMPLE_ID, "lease_seconds": 15.0}
SLOT_RELEASED: SlotRenewedResponse = {"slot_id": EXAMPLE_ID, "lease_seconds": 0}

# --- generations ---------------------------------------------------------------------------------
RUNNING_GENERATION = RUNNING_JOB._replace(
    name="generate",
    plan=(_step("generate", Executor.PULL),),
    step=0,
    model="music",
    duration=30.0,
    tier="premium",
    level="premium",
    paid_at=0,
    progress=Progress(45.0, "", NOW),
)
GENERATION_ACCEPTED: GenerationAcceptedResponse = generation.accepted(
    EXAMPLE_ID, Placement("premium", "premium", 3, ETA)
)
GENERATION: GenerationResponse = generation.detail(
    _detail(
        RUNNING_GENERATION, input={"prompt": "a heron at dawn", "model": "music", "duration": 30}
    ),
    skip_cost=None,
)
OWN_QUEUE: OwnQueueResponse = {
    "queue_length": 5,
    "current_job": EXAMPLE_ID,
    "jobs": [generation.summary(RUNNING_GENERATION, None, None, None)],
    "next": None,
}
SERVICE_QUEUE: ServiceQueueResponse = {
    "service": "generate",
    "jobs": [
        generation.row(RUNNING_GENERATION, 0, own=True, same_tenant=True),
        generation.row(
            RUNNING_GENERATION._replace(state=State.QUEUED, progress=None),
            1,
            own=False,
            same_tenant=True,
        ),
    ],
    "total": 6,
    "not_shown": 4,
}
STATUS: StatusResponse = {
    "service": "generate",
    "scheduler": {
        "last_model_used": "audio",
        "batch_count": 2,
        "max_batch_size": 3,
        "starvation_timeouts": {"admin": 30.0, "creator": 45.0, "free": 120.0},
    },
    "estimated_wait": {"audio": 45.0, "music": 90.0},
    "estimated_wait_by_tier": {
        "admin": {"audio": 5.0, "music": 8.0},
        "creator": {"audio": 20.0, "music": 24.0},
        "free": {"audio": 45.0, "music": 90.0},
    },
    "models": {"music": {"load_seconds": 3.4, "service_seconds": 28.1, "loads": 12}},
    "workers": [
        {
            "worker_id": WORKER_ID,
            "slot": None,
            "model": "audio",
            "since": iso(STARTED_AT),
            "batch_count": 2,
        }
    ],
    "queue_length": 5,
    "running": 1,
}
GENERATION_CANCELLED: GenerationStateResponse = {"id": EXAMPLE_ID, "status": "cancelled"}

# --- worker protocol -----------------------------------------------------------------------------
REGISTERED: RegisterResponse = {
    "worker_id": WORKER_ID,
    "poll_interval_ms": 1000,
    "heartbeat_seconds": 30.0,
    "lease_seconds": 90.0,
}
POLLED: PollResponse = {
    "tasks": [
        {
            "task_id": EXAMPLE_ID,
            "task_type": "resize",
            "parameters": {"file": "heron.png", "width": 640},
            "context": {},
            "timeout_seconds": 600.0,
            "timeout_given": False,
            "checked_step": None,
            "trace_id": EXAMPLE_ID.replace("-", ""),
            "attempt": 1,
            "model": "",
            "lease": EXAMPLE_LEASE,
            "lease_expires_at": iso(NOW + 90 * SECOND),
        }
    ],
    "cancel": [],
    "lost": [],
    "drain": False,
    "confirm": False,
}
HEARTBEAT: HeartbeatResponse = {
    "acknowledged": True,
    "cancel": [EXAMPLE_ID],
    "lost": [],
    "drain": False,
}
RESULTS: ResultListResponse = {
    "results": [
        {
            "task_id": EXAMPLE_ID,
            "status": "completed",
            "http_status": 200,
            "code": "",
            "detail": "",
        }
    ]
}
ACKNOWLEDGED: AcknowledgedResponse = {"acknowledged": True}
WORKER: WorkerResponse = {
    "worker_id": WORKER_ID,
    "name": "gpu-1",
    "status": WorkerState.ACTIVE,
    "capabilities": ["gpu"],
    "task_types": ["resize"],
    "region": None,
    "regions": [],
    "tiers": None,
    "capacity": 5,
    "current_load": 1,
    "current_tasks": [EXAMPLE_ID],
    "last_heartbeat": iso(NOW),
    "version": "",
}
DRAINING_WORKER: WorkerResponse = {**WORKER, "status": WorkerState.DRAINING}
WORKERS: WorkerListResponse = {"workers": [WORKER], "next": None}

# --- problems ------------------------------------------------------------------------------------
_QUEUE_FULL = Refused(
    "queue_full",
    "1000 jobs wait for image_gen; the limit is 1000",
    limit=1000,
    frees_at=NOW,
    setting="services.waiting",
)
_QUEUE_FULL.tier = "low"
_PROBLEMS: dict[int, Exception] = {
    400: ProblemDetails(400, "malformed_json", "the body is not JSON: unexpected end of data"),
    401: ProblemDetails(401, "unauthorized", "send a key: Authorization: Bearer …"),
    402: InsufficientCredits(5, 3),
    403: ProblemDetails(403, "forbidden", "this key may not do that"),
    404: no_job(EXAMPLE_ID),
    408: ProblemDetails(408, "too_slow", "a request arrives within 30 s"),
    409: WrongState(EXAMPLE_ID, State.COMPLETED, Move.CANCEL),
    410: Expired(EXAMPLE_ID, State.COMPLETED),
    413: ProblemDetails(413, "too_large", "a request has at most 10485760 bytes"),
    415: ProblemDetails(415, "unsupported_media_type", "send application/json"),
    421: ProblemDetails(421, "host_not_allowed", "this host name is not in server.allowed_hosts"),
    422: InvalidInput("max_wait_seconds: 0 or more is needed"),
    429: _QUEUE_FULL,
    431: ProblemDetails(431, "headers_too_large", "at most 16 KiB of headers"),
    502: ProblemDetails(
        502,
        JobDead.code,
        str(JobDead(EXAMPLE_ID, "MAX_ATTEMPTS", "fast_chat_llm: the connection was lost")),
        more={"job_id": EXAMPLE_ID, "state": State.DEAD},
    ),
    504: ProblemDetails(
        504,
        "inference_timeout",
        "the job has not ended after 300 s and is kept; follow it with "
        f"GET /api/v1/jobs/{EXAMPLE_ID}",
        more={"job_id": EXAMPLE_ID},
    ),
    503: NotReady("the index is being rebuilt; try again in a moment"),
}
PROBLEMS = {
    status: problem_body(
        problem_of(error, CREATED_AT), f"/api/v1/jobs/{EXAMPLE_ID}", "5f0c9f7be3a1"
    )
    for status, error in _PROBLEMS.items()
}
"""An example of each problem response, by its HTTP status."""
