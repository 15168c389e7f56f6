"""Serializers of generations: jobs in the words of a generation queue (`processing`, `skipped`,
`progress_pct`)."""

from __future__ import annotations

from fairlane.api.schemas import serializers
from fairlane.api.schemas.states import generation_status
from fairlane.api.schemas.timestamps import iso, iso_or_none, seconds
from fairlane.engine.queries import JobDetail, Placement
from fairlane.index.index import ModelTimes
from fairlane.model.job import Job
from fairlane.model.job_result import result_of
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.tier import Tiers
from fairlane.model.worker import Loaded
from fairlane.policy.eta_calibration import Eta
from fairlane.responses import (
    GenerationAcceptedResponse,
    GenerationResponse,
    GenerationSummaryResponse,
    LoadedModelResponse,
    ModelTimesResponse,
    QueueRowResponse,
    SchedulerResponse,
)

SKIPPED = "skipped"
"""The priority of a job after a paid skip."""

PROCESSING_POSITION = 0


def accepted(job_id: str, placement: Placement) -> GenerationAcceptedResponse:
    return {
        "job_id": job_id,
        "status": "queued",
        "priority": placement.tier,
        "effective_priority": placement.effective_tier,
        "position": placement.position,
        "eta": serializers.eta(placement.eta),
    }


def known(seen: JobDetail) -> GenerationAcceptedResponse:
    """Serializes a generation that was accepted before (idempotent replay)."""
    return {
        "job_id": seen.job.id,
        "status": generation_status(seen.job.state),
        "priority": priority(seen.job),
        "effective_priority": seen.effective_tier,
        "position": seen.position,
        "eta": serializers.eta(seen.eta),
    }


def expired(job_id: str) -> GenerationAcceptedResponse:
    """Serializes a generation that was accepted before and whose record was removed."""
    return {
        "job_id": job_id,
        "status": "expired",
        "priority": None,
        "effective_priority": None,
        "position": None,
        "eta": None,
    }


def summary(
    job: Job, position: int | None, eta: Eta | None, skip_cost: int | None
) -> GenerationSummaryResponse:
    """Serializes a generation for its owner. `position` is its place in the queue."""
    return {
        "id": job.id,
        "user_id": job.user,
        "status": generation_status(job.state),
        "model": job.model,
        "duration": job.duration,
        "priority": priority(job),
        "tier": job.tier,
        "skipped": job.paid_at > 0,
        "skip_cost": skip_cost,
        "progress": progress(job),
        "progress_pct": percent(job),
        "position": PROCESSING_POSITION if job.state is State.RUNNING else position,
        "estimated_wait": None if eta is None else seconds(eta.p50),
        "created_at": iso(job.created_at),
        "started_at": iso_or_none(job.started_at),
        "completed_at": iso_or_none(job.finished_at),
        "error": serializers.error(job.error),
    }


def row(job: Job, position: int, *, own: bool, same_tenant: bool) -> QueueRowResponse:
    """Serializes a job in the queue for any caller. Of a job that is not its own, a caller learns
    neither the id nor any text, and of a job of another tenant only its place."""
    return {
        "id": job.id if own else None,
        "own": own,
        "status": generation_status(job.state),
        "model": job.model if same_tenant else None,
        "duration": job.duration if same_tenant else None,
        "priority": priority(job),
        "skipped": job.paid_at > 0,
        "progress": progress(job) if own else None,
        "progress_pct": percent(job) if same_tenant else None,
        "position": position,
    }


def detail(seen: JobDetail, skip_cost: int | None) -> GenerationResponse:
    return {
        **summary(seen.job, seen.position, seen.eta, skip_cost),
        "started_at": iso_or_none(seen.started_at),
        "prompt": seen.input.get("prompt") if isinstance(seen.input, dict) else None,
        "result": result_of(seen.job, seen.context),
        "reason": serializers.wait_reason(seen),
    }


def scheduler(service: Service, tiers: Tiers, last: Loaded) -> SchedulerResponse:
    return {
        "last_model_used": last.model or None,
        "batch_count": last.streak,
        "max_batch_size": service.batch_size,
        "starvation_timeouts": {
            tier: seconds(patience)
            for tier, patience in zip(tiers.names, tiers.patience, strict=True)
        },
    }


def model_times(times: ModelTimes) -> ModelTimesResponse:
    return {
        "load_seconds": None if times.load is None else seconds(times.load),
        "service_seconds": None if times.work is None else seconds(times.work),
        "loads": times.loads,
    }


def waits(by_model: dict[str, Eta | None]) -> dict[str, float | None]:
    return {model: None if eta is None else seconds(eta.p50) for model, eta in by_model.items()}


def loaded(
    where: Loaded, *, worker: str | None = None, slot: str | None = None
) -> LoadedModelResponse:
    return {
        "worker_id": worker,
        "slot": slot,
        "model": where.model,
        "since": iso(where.since),
        "batch_count": where.streak,
    }


def running_model(job: Job) -> LoadedModelResponse:
    """Serializes the model of a worker that another process knows, from the job that it runs."""
    return {
        "worker_id": serializers.worker(job),
        "slot": None,
        "model": job.model,
        "since": None,
        "batch_count": None,
    }


def priority(job: Job) -> str:
    return SKIPPED if job.paid_at > 0 else job.tier


def percent(job: Job) -> int:
    """Returns what the worker reported, and 100 for a completed job."""
    if job.state is State.COMPLETED:
        return 100
    if job.progress is None or job.state is State.QUEUED:
        return 0
    return max(0, min(100, round(job.progress.percent)))


def progress(job: Job) -> str | None:
    """Returns the worker's text. Without one, the text says the percentage."""
    if job.progress is None or job.state is State.QUEUED:
        return None
    return job.progress.text or f"Generating... {percent(job)}%"
