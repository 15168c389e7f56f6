"""Worker protocol routes: register, poll, heartbeat, result, progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Path, Query, Request
from pydantic import ValidationError

from fairlane.api.context import Here, RequestContext
from fairlane.api.http.body_limits import parse, read
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.http.validation_errors import invalid
from fairlane.api.pagination import cursor, read_cursor
from fairlane.api.routes.jobs import MAX_PAGE, Cursor, Limit
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.requests import EXAMPLE_ID
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.states import task_status_or_none
from fairlane.api.schemas.timestamps import iso, seconds
from fairlane.api.schemas.worker_requests import (
    HeartbeatRequest,
    OutputRequest,
    PollRequest,
    ProgressRequest,
    RegisterRequest,
    ResultRequest,
)
from fairlane.errors import NotYours, StaleLease
from fairlane.model.worker import Worker, WorkerState, worker_of
from fairlane.responses import (
    AcknowledgedResponse,
    HeartbeatResponse,
    LeasedTaskResponse,
    LeaseNewsResponse,
    PollResponse,
    RegisterResponse,
    ResultListResponse,
    ResultResponse,
    WorkerListResponse,
    WorkerResponse,
)
from fairlane.worker_protocol.messages import News, Task, Verdict
from fairlane.worker_protocol.service import TOO_LARGE

routes = Routes("workers")

POLL_INTERVAL_MS = 1000
MAX_RESULT_NODES = 2_000_000
"""JSON values in one request with results. A result is the output of a step, and may be large."""

STATUSES = {"": 200, NotYours.code: 403, StaleLease.code: 409, TOO_LARGE: 413}
WorkerId = Annotated[str, Path(pattern=r"^[^\u0000]{1,100}$", examples=[EXAMPLE_ID])]


@routes.add("POST", "/internal/workers/register", "worker", example=examples.REGISTERED, status=201)
async def register_worker(call: Here, body: RegisterRequest) -> TypedResponse[RegisterResponse]:
    """Register a worker of this key. Its leases last three heartbeat intervals."""
    worker = await call.app_context.worker_service.register(body.offer(), call.identity.key)
    response: RegisterResponse = {
        "worker_id": worker.id,
        "poll_interval_ms": POLL_INTERVAL_MS,
        "heartbeat_seconds": seconds(worker.heartbeat),
        "lease_seconds": seconds(worker.lease),
    }
    return serializers.answer(response, 201)


@routes.add(
    "POST",
    "/internal/workers/{worker_id}/poll",
    "worker",
    example=examples.POLLED,
    problems=(404,),
)
async def poll_tasks(
    call: Here, worker_id: WorkerId, body: PollRequest, request: Request
) -> TypedResponse[PollResponse]:
    """Wait until there is work, or one of `leases` is lost (long poll). The same `poll_id` again
    returns the same leases."""
    worker = await _own(call, worker_id)
    if body.capabilities is not None:  # may only be fewer than registered
        offered = worker.capabilities & frozenset(body.capabilities)
        worker = replace(worker, capabilities=offered)

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    news = await call.app_context.worker_service.poll(worker, body.ask(), disconnected)
    tasks = [_task(each) for each in news.tasks]
    return serializers.answer({"tasks": tasks, **_heard(news), "confirm": news.confirm})


@routes.add(
    "POST",
    "/internal/workers/{worker_id}/heartbeat",
    "worker",
    example=examples.HEARTBEAT,
    problems=(404,),
)
async def hear_worker(
    call: Here, worker_id: WorkerId, body: HeartbeatRequest
) -> TypedResponse[HeartbeatResponse]:
    """Report that the worker is alive, and renew its leases. The response names the tasks to stop,
    and says whether to drain."""
    worker = await _own(call, worker_id)
    leases = None if body.leases is None else [each.ref() for each in body.leases]
    news = await call.app_context.worker_service.heartbeat(worker, body.state, leases)
    return serializers.answer({"acknowledged": True, **_heard(news)})


@routes.add(
    "POST",
    "/internal/workers/{worker_id}/result",
    "worker",
    takes=ResultRequest,
    example=examples.RESULTS,
    problems=(404, 409),
)
async def take_results(
    call: Here, worker_id: WorkerId, request: Request
) -> TypedResponse[ResultListResponse]:
    """Report how attempts ended. A single result is answered with its own HTTP status. Several
    results each have an `http_status` in the response."""
    worker = await _own(call, worker_id)
    sent = parse(
        await read(request.scope, request.receive, request.scope["bounds"]), MAX_RESULT_NODES
    )
    body = _validated(sent)
    verdicts = await call.app_context.worker_service.report(worker, body.given())
    if body.results is None:
        _raise_for(verdicts[0])
    return serializers.answer({"results": [_verdict(each) for each in verdicts]})


@routes.add(
    "POST",
    "/internal/workers/{worker_id}/progress",
    "worker",
    example=examples.ACKNOWLEDGED,
    problems=(404, 409),
)
async def take_progress(
    call: Here, worker_id: WorkerId, body: ProgressRequest
) -> TypedResponse[AcknowledgedResponse]:
    """Report the progress of a task. Clients see it in the task and in its event stream."""
    worker = await _own(call, worker_id)
    await call.app_context.worker_service.progress(worker, body.ref(), body.percent, body.text)
    return serializers.answer({"acknowledged": True})


@routes.add(
    "POST",
    "/internal/workers/{worker_id}/output",
    "worker",
    example=examples.ACKNOWLEDGED,
    problems=(404, 409),
)
async def take_output(
    call: Here, worker_id: WorkerId, body: OutputRequest
) -> TypedResponse[AcknowledgedResponse]:
    """Stream output of a running task to clients that wait for its result. It is not stored, and
    may be dropped."""
    worker = await _own(call, worker_id)
    await call.app_context.worker_service.output(worker, body.ref(), body.first, body.chunks)
    return serializers.answer({"acknowledged": True})


async def _own(call: RequestContext, worker_id: str) -> Worker:
    return await call.app_context.worker_service.worker(worker_id, call.identity.key)


def _validated(sent: Any) -> ResultRequest:
    try:
        return ResultRequest.model_validate(sent)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None


def _task(task: Task) -> LeasedTaskResponse:
    return {
        "task_id": task.id,
        "task_type": task.type,
        "parameters": task.parameters,
        "context": task.context,
        "timeout_seconds": seconds(task.timeout),
        "timeout_given": task.timeout_given,
        "checked_step": task.checked_step,
        "trace_id": task.trace,
        "attempt": task.attempt,
        "model": task.model,
        "lease": task.lease,
        "lease_expires_at": iso(task.lease_until),
    }


def _heard(news: News) -> LeaseNewsResponse:
    return {"cancel": list(news.cancel), "lost": list(news.lost), "drain": news.drain}


def _verdict(verdict: Verdict) -> ResultResponse:
    return {
        "task_id": verdict.task,
        "status": task_status_or_none(verdict.state),
        "http_status": STATUSES.get(verdict.code, 422),
        "code": verdict.code,
        "detail": verdict.detail,
    }


def _raise_for(verdict: Verdict) -> None:
    if verdict.code:
        told = verdict.state or verdict.code == StaleLease.code
        more = {"current_state": task_status_or_none(verdict.state)} if told else {}
        raise ProblemDetails(
            STATUSES.get(verdict.code, 422), verdict.code, verdict.detail, more=more
        )


# --- administration ------------------------------------------------------------------------------
@routes.add("GET", "/api/v1/workers", "read", example=examples.WORKERS)
async def list_workers(
    call: Here,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
    limit: Limit = MAX_PAGE,
) -> TypedResponse[WorkerListResponse]:
    """List every worker with a sign of life in the last day, with its running tasks, by id."""
    engine = call.engine
    after = read_cursor(call.app_context.signer, "workers", cursor_) or ""
    found = sorted(
        (each for each in await engine.workers.all() if each[0].id > after),
        key=lambda each: each[0].id,
    )
    last = found[limit - 1][0].id if len(found) > limit else None
    tasks: dict[str, list[str]] = {}
    load: dict[str, int] = {}
    for job in await engine.workers.running_jobs():
        name = worker_of(job.worker or "")
        load[name] = load.get(name, 0) + 1
        if call.identity.owns(job):
            tasks.setdefault(name, []).append(job.id)
    now = engine.clock.now()
    return serializers.answer(
        {
            "workers": [
                _worker(worker, at, now, load.get(worker.id, 0), tasks.get(worker.id, []))
                for worker, at in found[:limit]
            ],
            "next": cursor(call.app_context.signer, "workers", last),
        }
    )


def _worker(worker: Worker, at: int, now: int, load: int, tasks: list[str]) -> WorkerResponse:
    return {
        "worker_id": worker.id,
        "name": worker.name,
        "status": status_of(worker, at, now),
        "capabilities": sorted(worker.capabilities),
        "task_types": None if worker.services is None else sorted(worker.services),
        "region": worker.region,
        "regions": [place for place in worker.places if place is not None],
        "tiers": None if worker.tiers is None else sorted(worker.tiers),
        "capacity": worker.capacity,
        "current_load": load,
        "current_tasks": tasks,
        "last_heartbeat": iso(at),
        "version": worker.version,
    }


def status_of(worker: Worker, at: int, now: int) -> WorkerState:
    """Returns the worker's state. A worker is dead after three missed heartbeats."""
    return WorkerState.DEAD if now - at > worker.lease else worker.state


@routes.add(
    "POST",
    "/admin/workers/{worker_id}/drain",
    "admin",
    example=examples.DRAINING_WORKER,
    problems=(404,),
)
async def drain_worker(call: Here, worker_id: WorkerId) -> TypedResponse[WorkerResponse]:
    """Drain a worker: it finishes its tasks and gets no more. Its next response tells it."""
    worker = await call.app_context.worker_service.drain(worker_id)
    held = await call.engine.workers.running_jobs(worker_id)
    own = [job.id for job in held if job.tenant == call.tenant]
    now = call.engine.clock.now()
    return serializers.answer(_worker(worker, now, now, len(held), own))
