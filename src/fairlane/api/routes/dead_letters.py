"""Dead letter routes: list, replay and purge jobs whose attempts are used up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated

from fastapi import Body, Depends, Query

from fairlane.api.auth.ownership import checked
from fairlane.api.context import Here, RequestContext
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routes.jobs import Cursor, IdempotencyKey, JobId, Limit, moved, operation, page
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.requests import (
    DeadLetterFilter,
    DeadLetterRequest,
    Name,
    ReplayRequest,
    Text,
    Time,
    User,
)
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import iso_or_none
from fairlane.errors import NotFound, WrongState
from fairlane.ledger.messages import Filter
from fairlane.model.job import Job
from fairlane.model.state import State
from fairlane.model.step import Lane
from fairlane.responses import (
    CountResponse,
    DeadLetterPageResponse,
    DeadLetterResponse,
    JobStateResponse,
    ReplayPreviewResponse,
    ReplayResponse,
    RuntimeStatsResponse,
)

routes = Routes("dead letters")

AT_ONCE, PAGE = 1_000, 200
PREVIEWED = 100
"""The most dead letters that a preview shows one by one."""


@routes.add("GET", "/admin/runtime/stats", "admin", example=examples.RUNTIME_STATS)
async def runtime_stats(call: Here) -> TypedResponse[RuntimeStatsResponse]:
    """Count waiting, delayed and dead jobs, for all tenants."""
    stats = await call.engine.index_stats()
    return serializers.answer(
        {
            "main": sum(depth.waiting for depth in stats.depths),
            "retry": sum(depth.delayed for depth in stats.depths),
            "dead": await call.engine.count(State.DEAD),
        }
    )


async def _chosen(
    user_id: User | None = None,
    feature_name: Name | None = None,
    tag: Text | None = None,
    service: Annotated[Name | None, Query(description="That of the step that failed.")] = None,
    region: Annotated[Name | None, Query(description="Where the last attempt ran.")] = None,
    error_code: Annotated[
        Text | None, Query(description="The job's error code, or the fault of its last attempt.")
    ] = None,
    died_from: Annotated[Time | None, Query(description="Died at this time or later.")] = None,
    died_to: Annotated[Time | None, Query(description="Died before this time.")] = None,
) -> DeadLetterFilter:
    return DeadLetterFilter.model_construct(**locals())


@routes.add("GET", "/admin/queue-dead", "admin", example=examples.DEAD_LETTER_PAGE)
async def list_dead(
    call: Here,
    chosen: Annotated[DeadLetterFilter, Depends(_chosen)],
    cursor: Annotated[Cursor, Query()] = None,
    limit: Limit = 50,
) -> TypedResponse[DeadLetterPageResponse]:
    """List dead letters, newest first. `total` counts all dead letters of the tenant."""
    wanted = _filter(call, chosen)
    found = await page(call, wanted, cursor, limit)
    return serializers.answer({**found, "total": await call.engine.count(State.DEAD, call.tenant)})


@routes.add(
    "GET",
    "/admin/queue-dead/{job_id}/attempts",
    "admin",
    example=examples.DEAD_LETTER,
    problems=(404, 410),
)
async def get_dead(call: Here, job_id: JobId) -> TypedResponse[DeadLetterResponse]:
    """Get one dead letter with every attempt: its worker, its times and its error."""
    seen = await call.engine.view(checked(job_id), call.tenant)
    if seen.job.state is not State.DEAD:
        raise ProblemDetails(404, NotFound.code, f"job {job_id} is {seen.job.state}, not dead")
    tried = await call.engine.attempts(job_id, call.tenant)
    return serializers.answer(
        {**serializers.view(seen), "attempts": [serializers.attempt(each) for each in tried]}
    )


@routes.add(
    "POST",
    "/admin/queue-dead/{job_id}/replay",
    "admin",
    example=examples.QUEUED_AGAIN,
    status=202,
    problems=(404, 409, 410),
)
async def replay_dead(
    call: Here, job_id: JobId, key: IdempotencyKey = None
) -> TypedResponse[JobStateResponse]:
    """Continue from the failed step, with all attempts again."""
    await call.engine.replay(checked(job_id), call.tenant, operation(call, key))
    return await moved(call, job_id)


@routes.add("POST", "/admin/queue-dead/replay", "admin", example=examples.REPLAY)
async def replay_all_dead(
    call: Here, body: Annotated[ReplayRequest | None, Body()] = None
) -> TypedResponse[ReplayResponse]:
    """Replay up to 1,000 dead letters. Each is replayed once, also if the request is repeated. With
    `preview`, nothing changes: the answer says what would run."""
    if body is not None and body.preview:
        return await _preview(call, body)

    async def replay(jobs: list[Job]) -> int:
        done = 0
        for job in jobs:
            with suppress(WrongState, NotFound):  # another request was faster
                await call.engine.replay(job.id, call.tenant)
                done += 1
        return done

    count, more = await _all(call, body, replay)
    return serializers.answer({"count": count, "more": more})


async def _preview(call: RequestContext, body: ReplayRequest) -> TypedResponse[ReplayResponse]:
    shown: list[ReplayPreviewResponse] = []

    async def look_at(jobs: list[Job]) -> int:
        for job in jobs[: PREVIEWED - len(shown)]:
            lane = Lane.parse(job.current.lane)
            shown.append(
                {
                    "job_id": job.id,
                    "feature_name": job.name,
                    "user_id": job.user,
                    "service": job.current.service,
                    "step": job.step,
                    "regions": list(lane.regions),
                    "region": job.region,
                    "died_at": iso_or_none(job.finished_at),
                    "runnable": await call.engine.is_runnable(job),
                }
            )
        return len(jobs)

    count, more = await _all(call, body, look_at)
    return serializers.answer({"count": count, "more": more, "would_run": shown})


@routes.add("POST", "/admin/queue-dead/purge", "admin", example=examples.COUNT)
async def purge_dead(
    call: Here, body: Annotated[DeadLetterRequest | None, Body()] = None
) -> TypedResponse[CountResponse]:
    """Delete up to 1,000 dead letters permanently. The audit log records it."""

    async def purge(jobs: list[Job]) -> int:
        return await call.engine.purge([job.id for job in jobs], call.tenant, call.actor)

    count, more = await _all(call, body, purge)
    return serializers.answer({"count": count, "more": more})


def _filter(call: RequestContext, chosen: DeadLetterFilter) -> Filter:
    return Filter(
        call.tenant,
        chosen.user_id,
        (State.DEAD,),
        chosen.feature_name,
        chosen.tag,
        service=chosen.service,
        region=chosen.region,
        error_code=chosen.error_code,
        ended_from=chosen.died_from,
        ended_to=chosen.died_to,
    )


async def _all(
    call: RequestContext, body: DeadLetterRequest | None, act: Callable[[list[Job]], Awaitable[int]]
) -> tuple[int, bool]:
    """Acts on up to 1,000 matching dead letters. Returns how many, and whether there are more."""
    wanted = _filter(call, (body or DeadLetterRequest()).filter)
    count, after = 0, None
    for _ in range(AT_ONCE // PAGE):
        found = await call.engine.list_jobs(wanted, after, PAGE)
        count += await act(found.jobs)
        after = found.next
        if after is None:
            break
    return count, after is not None
