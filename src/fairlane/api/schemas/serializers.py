"""Serializers: convert the engine's objects to response bodies (`fairlane/responses.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import orjson
from starlette.responses import Response

from fairlane.api.schemas.states import task_status
from fairlane.api.schemas.timestamps import iso, iso_or_none, seconds
from fairlane.engine.queries import JobDetail, Placement, QualityResult, WaitReason
from fairlane.ledger.messages import AuditedChange
from fairlane.ledger.statement import StatementEntry
from fairlane.model.attempt import Attempt
from fairlane.model.event import Event
from fairlane.model.file_result import FileResult, safe_type
from fairlane.model.job import Error, Job, Json, Progress
from fairlane.model.job_result import result_of, result_step
from fairlane.model.key import Key
from fairlane.model.service import Service
from fairlane.model.state import Code, State
from fairlane.model.step import Lane
from fairlane.model.worker import worker_of
from fairlane.policy.eta_calibration import Eta
from fairlane.responses import (
    AcceptedResponse,
    AttemptResponse,
    AuditEntryResponse,
    ErrorResponse,
    EtaResponse,
    EventResponse,
    ExecutionCountsResponse,
    ExecutionResponse,
    InferenceResponse,
    JobResponse,
    JobSummaryResponse,
    KeyResponse,
    LastErrorResponse,
    ProgressResponse,
    QualityResponse,
    ReasonResponse,
    ServiceResponse,
    StatementEntryResponse,
    TaskErrorResponse,
    TaskResponse,
)
from fairlane.trace_context import trace_id

Body = TypeVar("Body")


class TypedResponse(Response, Generic[Body]):
    """A JSON response with the type of its body, for mypy and for the OpenAPI description."""


class StreamedResponse(Response):
    """A response that is sent piece by piece, and that watches its client's connection."""


class AttachmentResponse(Response):
    """A file that a browser saves and never shows: a page of this origin could act for its user."""

    def __init__(self, file: FileResult) -> None:
        headers = {"Content-Disposition": "attachment"}
        super().__init__(file.data, 200, headers, safe_type(file.content_type))


def answer(
    value: Body, status: int = 200, headers: dict[str, str] | None = None
) -> TypedResponse[Body]:
    return TypedResponse(orjson.dumps(value), status, headers, "application/json")


def job(
    found: Job,
    effective: str | None = None,
    waited: int | None = None,
    started_at: int | None = None,
) -> JobSummaryResponse:
    """Serializes a job without its payload. `started_at` is its first start, if it started more
    than once."""
    return {
        "job_id": found.id,
        "feature_name": found.name,
        "user_id": found.user,
        "status": found.state,
        "priority": found.level,
        "original_priority": found.tier,
        "effective_priority": effective or found.level,
        "current_step_index": found.step,
        "total_steps": len(found.plan),
        "queued_at": iso(found.created_at),
        "started_at": iso_or_none(started_at or found.started_at),
        "finished_at": iso_or_none(found.finished_at),
        "promoted_at": iso_or_none(found.promoted_at),
        "last_progress_at": iso_or_none(_last_progress(found)),
        "assigned_worker_id": worker(found),
        "region": found.region,
        "waited_seconds": seconds(found.waited if waited is None else waited),
        "progress": progress(found.shown_progress),
        "error": error(found.error),
        "trace_id": trace_id(found.id, found.trace),
        "tags": list(found.tags),
        "callback_url": found.callback,
    }


def view(seen: JobDetail) -> JobResponse:
    return {
        **job(seen.job, seen.effective_tier, seen.waited, seen.started_at),
        "execution_time_ms": milliseconds(seen.execution_time),
        "last_error": last_error(seen.last_error),
        "input_data": seen.input,
        "context": seen.context,
        "position": seen.position,
        "eta": eta(seen.eta),
        "reason": wait_reason(seen),
        "quality": [_quality(each) for each in seen.quality],
        "executions": _execution_counts(seen.cells) if seen.job.fan_out else None,
    }


def _execution_counts(cells: Mapping[State, int]) -> ExecutionCountsResponse:
    return {
        "total": sum(cells.values()),
        "queued": cells.get(State.QUEUED, 0),
        "running": cells.get(State.RUNNING, 0),
        "completed": cells.get(State.COMPLETED, 0),
        "failed": cells.get(State.FAILED, 0),
        "dead": cells.get(State.DEAD, 0),
        "cancelled": cells.get(State.CANCELLED, 0),
    }


def _quality(value: QualityResult) -> QualityResponse:
    return {
        "step": value.step,
        "checked_step": value.checked_step,
        "passed": value.verdict.passed,
        "reason": value.verdict.reason,
    }


def task(seen: JobDetail, *, unrunnable: bool) -> TaskResponse:
    """Serializes a job of one step with the field names of task queues."""
    job = seen.job
    step = job.current
    return {
        "task_id": job.id,
        "task_type": job.name,
        "status": task_status(job.state),
        "priority": job.tier,
        "effective_priority": seen.effective_tier,
        "parameters": seen.input,
        "required_capabilities": list(Lane.parse(step.lane).capabilities),
        "timeout_seconds": seconds(job.timeout),
        "retry_count": max(0, job.attempt - (job.state is not State.QUEUED)),
        "max_retries": step.max_attempts - 1,
        "created_at": iso(job.created_at),
        "started_at": iso_or_none(seen.started_at),
        "completed_at": iso_or_none(job.finished_at),
        "execution_time_ms": milliseconds(seen.execution_time),
        "assigned_worker_id": worker(job),
        "queue_position": seen.position,
        "reason": wait_reason(seen),
        "unrunnable": unrunnable,
        "progress": progress(job.progress),
        "result": result_of(job, seen.context),
        "error": _task_error(job.error),
        "last_error": last_error(seen.last_error),
        "trace_id": trace_id(job.id, job.trace),
    }


def _task_error(value: Error | None) -> TaskErrorResponse | None:
    if value is None:
        return None
    return {
        "message": value.message,
        "retriable": value.code is Code.MAX_ATTEMPTS or value.resumable,
        "code": value.code,
    }


def wait_reason(seen: JobDetail) -> str | None:
    return " · ".join(reason.text for reason in seen.reasons) or None


def worker(found: Job) -> str | None:
    """Returns the id of the worker that runs the job or ran it last; None while it is queued."""
    if found.worker is None or found.state is State.QUEUED:
        return None
    return worker_of(found.worker)


def last_error(value: Attempt | None) -> LastErrorResponse | None:
    if value is None:
        return None
    return {
        "code": value.fault,
        "message": value.message,
        "attempt": value.number,
        "at": iso(value.ended_at),
    }


def milliseconds(duration: int | None) -> int | None:
    return None if duration is None else duration // 1000


def _last_progress(found: Job) -> int | None:
    reported = found.progress.at if found.progress else None
    times = (found.started_at, found.finished_at, reported)
    return max((at for at in times if at is not None), default=None) if found.started_at else None


def accepted(job_id: str, placement: Placement) -> AcceptedResponse:
    return {
        "job_id": job_id,
        "status": State.QUEUED,
        "priority": placement.tier,
        "effective_priority": placement.effective_tier,
        "position": placement.position,
        "eta": eta(placement.eta),
    }


def known(seen: JobDetail) -> AcceptedResponse:
    """Serializes a job that was accepted before (idempotent replay)."""
    return {
        "job_id": seen.job.id,
        "status": seen.job.state,
        "priority": seen.job.level,
        "effective_priority": seen.effective_tier,
        "position": seen.position,
        "eta": eta(seen.eta),
    }


def eta(value: Eta | None) -> EtaResponse | None:
    if value is None:
        return None
    return {"p50_seconds": seconds(value.p50), "p90_seconds": seconds(value.p90)}


def progress(value: Progress | None) -> ProgressResponse | None:
    return None if value is None else {"percent": value.percent, "text": value.text}


def error(value: Error | None) -> ErrorResponse | None:
    if value is None:
        return None
    return {"code": value.code, "message": value.message, "resumable": value.resumable}


def event(value: Event) -> EventResponse:
    return {
        "seq": value.seq,
        "type": value.type,
        "job_id": value.job,
        "at": iso(value.at),
        "message": value.message,
        "data": _data(value.data),
    }


def _data(values: dict[str, Json]) -> dict[str, Json]:
    """Converts the time in an event's data to RFC 3339."""
    again_at = values.get("again_at")
    return {**values, "again_at": iso(again_at)} if isinstance(again_at, int) else values


def reason(value: WaitReason) -> ReasonResponse:
    return {"code": value.code, "text": value.text, "until": iso_or_none(value.until)}


def execution(cell: Job, context: dict[str, Json]) -> ExecutionResponse:
    return {
        "execution_id": cell.id,
        "job_id": cell.parent or "",
        "cell": cell.cell or {},
        "status": cell.state,
        "region": cell.region,
        "attempts": cell.fence,
        "started_at": iso_or_none(cell.started_at),
        "finished_at": iso_or_none(cell.finished_at),
        "progress": progress(cell.progress),
        "error": error(cell.error),
        "result": result_of(cell, context),
    }


def inference(found: Job, context: dict[str, Json]) -> InferenceResponse:
    """Serializes a completed job for the caller that has waited for it."""
    step = result_step(found, context)
    return {
        "job_id": found.id,
        "data": result_of(found, context),
        "metrics": None if step is None else step.get("metrics"),
        "region": found.region,
        "attempts": found.fence,
    }


def attempt(value: Attempt) -> AttemptResponse:
    return {
        "number": value.number,
        "step": value.step,
        "worker_id": worker_of(value.worker),
        "region": value.region,
        "started_at": iso(value.started_at),
        "ended_at": iso(value.ended_at),
        "outcome": value.outcome,
        "fault": value.fault,
        "message": value.message,
    }


def key(value: Key) -> KeyResponse:
    return {
        "id": value.id,
        "name": value.name,
        "tenant": value.tenant,
        "role": value.role,
        "act_as": value.act_as,
        "set_priority": value.set_priority,
        "created_at": iso(value.created_at),
        "expires_at": iso_or_none(value.expires_at),
        "revoked_at": iso_or_none(value.revoked_at),
    }


def service(value: Service) -> ServiceResponse:
    return {
        "name": value.name,
        "executor": value.executor,
        "limit": value.limit,
        "rate": value.rate,
        "waiting": value.waiting,
        "paused": value.paused,
        "provider": value.provider,
        "regions": {name: region.limit for name, region in value.regions.items()},
    }


def statement_entry(value: StatementEntry) -> StatementEntryResponse:
    return {
        "at": iso(value.at),
        "kind": value.kind,
        "amount": value.amount,
        "balance": value.balance,
        "job_id": value.job,
        "operation_key": value.operation_key,
        "note": value.note,
    }


def change(value: AuditedChange) -> AuditEntryResponse:
    return {
        "at": iso(value.at),
        "actor": value.actor,
        "action": value.action,
        "target": value.target,
        "before": value.before,
        "after": value.after,
    }
