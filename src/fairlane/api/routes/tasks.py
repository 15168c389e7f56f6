"""Task routes: jobs of one step that workers pull, with the field names of task queues."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.types import Receive, Scope

from fairlane.api.auth.ownership import checked
from fairlane.api.auth.roles import Identity
from fairlane.api.context import AppContext, Here, RequestContext
from fairlane.api.routes.jobs import IdempotencyKey, JobId, operation
from fairlane.api.routes.submit import placement_of, taken
from fairlane.api.routes.workers import status_of
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.states import task_status
from fairlane.api.schemas.task_requests import TaskRequest
from fairlane.api.schemas.timestamps import seconds
from fairlane.errors import Expired
from fairlane.ledger.messages import Replayed
from fairlane.model.state import State
from fairlane.model.step import service_of
from fairlane.model.worker import WorkerState
from fairlane.responses import (
    QueueStatsResponse,
    TaskAcceptedResponse,
    TaskResponse,
    TaskStateResponse,
    TierStatsResponse,
    WorkerStatsResponse,
)

routes = Routes("tasks")


@routes.hot(
    "POST",
    "/api/v1/tasks",
    "client",
    takes=TaskRequest,
    example=examples.TASK_ACCEPTED,
    status=202,
    also={200: "Accepted before with the same Idempotency-Key."},
)
async def submit_task(scope: Scope, receive: Receive) -> TypedResponse[TaskAcceptedResponse]:
    """Submit a task. It is durable and queued when the response is sent. A task type that no worker
    offers is accepted, and reported as `unrunnable` until a worker offers it."""
    app_context: AppContext = scope["app_context"]
    identity: Identity = scope["identity"]
    job, outcome = await taken(scope, receive, TaskRequest)
    location = {"Location": f"/api/v1/tasks/{outcome.job}"}
    if isinstance(outcome, Replayed):
        response = await _known(app_context, identity, outcome.job)
        return serializers.answer(response, 200, {**location, "Idempotent-Replayed": "true"})
    placement = await placement_of(app_context, outcome, job)
    response = {
        "task_id": outcome.job,
        "status": "queued",
        "queue_position": placement.position,
    }
    return serializers.answer(response, 202, location)


async def _known(app_context: AppContext, identity: Identity, task: str) -> TaskAcceptedResponse:
    try:
        seen = await app_context.engine.view(task, identity.tenant)
    except Expired:
        return {"task_id": task, "status": "expired", "queue_position": None}
    status = task_status(seen.job.state)
    return {"task_id": task, "status": status, "queue_position": seen.position}


@routes.add("GET", "/api/v1/tasks/{job_id}", "read", example=examples.TASK, problems=(404, 410))
async def get_task(call: Here, job_id: JobId) -> TypedResponse[TaskResponse]:
    """Get a task with its position and its result."""
    seen = await call.engine.view(checked(job_id), call.tenant)
    waits = seen.job.state is State.QUEUED
    unrunnable = waits and not await call.engine.is_runnable(seen.job)
    return serializers.answer(serializers.task(seen, unrunnable=unrunnable))


@routes.add(
    "DELETE",
    "/api/v1/tasks/{job_id}",
    "client",
    example=examples.TASK_CANCELLED,
    problems=(404, 409, 410),
)
async def cancel_task(
    call: Here, job_id: JobId, key: IdempotencyKey = None
) -> TypedResponse[TaskStateResponse]:
    """Cancel a task at once and permanently. A worker that runs it is told to stop, and its result
    is refused."""
    await call.engine.cancel(checked(job_id), call.tenant, operation(call, key))
    return serializers.answer({"task_id": job_id, "status": "cancelled"})


# --- the whole queue -----------------------------------------------------------------------------
@routes.add("GET", "/api/v1/queue/stats", "read", example=examples.QUEUE_STATS)
async def queue_stats(call: Here) -> TypedResponse[QueueStatsResponse]:
    """Get the depth of each tier, the workers, the throughput and the unrunnable tasks. Only
    services and task types of the caller's tenant are named."""
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


def _queues(call: RequestContext, depths: list[Any]) -> dict[str, TierStatsResponse]:
    found: dict[str, TierStatsResponse] = {}
    now = call.engine.clock.now()
    for rank, tier in enumerate(call.engine.catalog.tiers.names):
        own = [depth for depth in depths if depth.rank == rank]
        oldest = [depth.oldest for depth in own if depth.oldest is not None]
        found[tier] = {
            "depth": sum(depth.waiting + depth.delayed for depth in own),
            "oldest_age_seconds": seconds(max(0, now - min(oldest))) if oldest else None,
        }
    return found


async def _workers(call: RequestContext, running: int) -> WorkerStatsResponse:
    engine = call.engine
    now = engine.clock.now()
    states = [(status_of(each, at, now), each) for each, at in await engine.workers.all()]
    counts = Counter(state for state, _ in states)
    return {
        "active": counts[WorkerState.ACTIVE],
        "draining": counts[WorkerState.DRAINING],
        "dead": counts[WorkerState.DEAD],
        "total_capacity": sum(
            each.capacity for state, each in states if state is not WorkerState.DEAD
        ),
        "used_capacity": running,
    }
