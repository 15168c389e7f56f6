"""Task routes: jobs of one step that workers pull, in the words of task queues."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope

from fairlane.api.auth.ownership import checked
from fairlane.api.auth.roles import Identity
from fairlane.api.context import AppContext, Here, RequestContext
from fairlane.api.routes.jobs import Again, JobId, operation
from fairlane.api.routes.submit import placement_of, taken
from fairlane.api.routes.workers import status_of
from fairlane.api.routing import Routes
from fairlane.api.schemas import serializers, tasks
from fairlane.api.schemas.states import task_word
from fairlane.api.schemas.tasks import TaskRequest
from fairlane.api.schemas.timestamps import iso, iso_or_none, seconds
from fairlane.engine.queries import JobDetail
from fairlane.errors import Expired
from fairlane.ids import trace_id
from fairlane.ledger.messages import Replayed
from fairlane.model.state import Code, State
from fairlane.model.step import Lane, service_of
from fairlane.model.worker import WorkerState

routes = Routes("tasks")


@routes.hot(
    "POST",
    "/api/v1/tasks",
    "client",
    takes=TaskRequest,
    gives=tasks.TaskAcceptedResponse,
    status=202,
    also={
        200: {"model": tasks.TaskAcceptedResponse, "description": "Accepted before, with this key."}
    },
)
async def submit_task(scope: Scope, receive: Receive) -> Response:
    """Durable and in line when it is answered. A type that no worker offers yet is accepted, and
    shown as `unrunnable` until one does."""
    app_context: AppContext = scope["app_context"]
    identity: Identity = scope["identity"]
    job, outcome = await taken(scope, receive, TaskRequest)
    location = {"Location": f"/api/v1/tasks/{outcome.job}"}
    if isinstance(outcome, Replayed):
        shown = await _known(app_context, identity, outcome.job)
        return serializers.answer(shown, 200, {**location, "Idempotent-Replayed": "true"})
    placement = await placement_of(app_context, outcome, job)
    shown = {
        "task_id": outcome.job,
        "status": State.QUEUED,
        "queue_position": placement.position,
    }
    return serializers.answer(shown, 202, location)


async def _known(app_context: AppContext, identity: Identity, task: str) -> dict[str, Any]:
    try:
        seen = await app_context.engine.view(task, identity.tenant)
    except Expired:
        return {"task_id": task, "status": "expired", "queue_position": None}
    status = task_word(seen.job.state)
    return {"task_id": task, "status": status, "queue_position": seen.position}


@routes.add("GET", "/api/v1/tasks/{job_id}", "read", gives=tasks.TaskResponse, problems=(404, 410))
async def get_task(call: Here, job_id: JobId) -> Response:
    """The task, where it stands, and what it has made."""
    seen = await call.engine.view(checked(job_id), call.tenant)
    waits = seen.job.state is State.QUEUED
    unrunnable = waits and not await call.engine.is_runnable(seen.job)
    return serializers.answer(_task(seen, unrunnable=unrunnable))


@routes.add(
    "DELETE",
    "/api/v1/tasks/{job_id}",
    "client",
    gives=tasks.TaskStateResponse,
    problems=(404, 409, 410),
)
async def cancel_task(call: Here, job_id: JobId, key: Again = None) -> Response:
    """At once and for good; a worker that runs it is told, and its result will be refused."""
    await call.engine.cancel(checked(job_id), call.tenant, operation(call, key))
    return serializers.answer({"task_id": job_id, "status": State.CANCELLED})


def _task(seen: JobDetail, *, unrunnable: bool) -> dict[str, Any]:
    job = seen.job
    step = job.current
    outputs = [value for name, value in seen.context.items() if not name.endswith("__attempts")]
    error = job.error
    return {
        "task_id": job.id,
        "task_type": job.name,
        "status": task_word(job.state),
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
        "execution_time_ms": serializers.milliseconds(seen.execution_time),
        "assigned_worker_id": serializers.worker(job),
        "queue_position": seen.position,
        "reason": " · ".join(reason.text for reason in seen.reasons) or None,
        "unrunnable": unrunnable,
        "progress": serializers.progress(job.progress),
        "result": outputs[-1].get("data") if outputs else None,
        "error": None
        if error is None
        else {
            "message": error.message,
            "retriable": error.code is Code.MAX_ATTEMPTS or error.resumable,
            "code": error.code,
        },
        "last_error": serializers.last_error(seen.last_error),
        "trace_id": trace_id(job.id, job.trace),
    }


# --- the whole queue -----------------------------------------------------------------------------
@routes.add("GET", "/api/v1/queue/stats", "read", gives=tasks.QueueStatsResponse)
async def queue_stats(call: Here) -> Response:
    """How many wait in each tier, who works, how much is done, and what nobody can run. Of task
    types only those that the caller's tenant has jobs of are named."""
    overview = await call.engine.overview()
    engine = call.engine
    own = engine.task_types(call.tenant)
    by_type: dict[str, int] = {}
    for lane, waiting in overview.unrunnable.items():
        name = service_of(lane)
        if name in own or name in engine.catalog.services:
            by_type[name] = by_type.get(name, 0) + waiting
    return serializers.answer(
        {
            "queues": _queues(call, overview.stats.depths),
            "workers": await _workers(call, overview.running),
            "throughput": {
                "completed_last_minute": overview.completed_last_minute,
                "failed_last_minute": overview.failed_last_minute,
            },
            "unrunnable": sum(overview.unrunnable.values()),
            "unrunnable_by_type": by_type,
        }
    )


def _queues(call: RequestContext, depths: list[Any]) -> dict[str, Any]:
    found = {}
    now = call.engine.clock.now()
    for rank, tier in enumerate(call.engine.catalog.tiers.names):
        own = [depth for depth in depths if depth.rank == rank]
        oldest = [depth.oldest for depth in own if depth.oldest is not None]
        found[tier] = {
            "depth": sum(depth.waiting + depth.delayed for depth in own),
            "oldest_age_seconds": seconds(max(0, now - min(oldest))) if oldest else None,
        }
    return found


async def _workers(call: RequestContext, running: int) -> dict[str, int]:
    engine = call.engine
    now = engine.clock.now()
    states = [(status_of(each, at, now), each) for each, at in await engine.workers.all()]
    counts = {str(state): sum(each is state for each, _ in states) for state in WorkerState}
    capacity = sum(each.capacity for state, each in states if state is not WorkerState.DEAD)
    return {**counts, "total_capacity": capacity, "used_capacity": running}
