"""Job routes: get, list, cancel, resume, replay, explain."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import Header, Path, Query
from pydantic import WithJsonSchema

from fairlane.api.auth.ownership import checked
from fairlane.api.context import Here, RequestContext
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.pagination import cursor, read_cursor
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.requests import EXAMPLE_ID, IDEMPOTENCY_KEY, Name, Text, User
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import iso_or_none
from fairlane.engine.queries import JobDetail, WaitReason
from fairlane.ledger.messages import Filter
from fairlane.model.job import Band
from fairlane.model.state import State
from fairlane.responses import (
    AttemptListResponse,
    ExplanationResponse,
    JobPageResponse,
    JobResponse,
    JobStateResponse,
)

routes = Routes("jobs")

STATUS_ALIASES = {
    "pending": State.QUEUED,
    "processing": State.RUNNING,
    "executing": State.RUNNING,
    "success": State.COMPLETED,
    "canceled": State.CANCELLED,
    "dead_letter": State.DEAD,
}
STATUS_NAMES = {**{str(state): state for state in State}, **STATUS_ALIASES}

JobId = Annotated[str, Path(examples=[EXAMPLE_ID], description="A job's id.")]
MAX_PAGE = 200
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str | None, Query(max_length=1000, description="`next` of the last page.")]
Statuses = Annotated[
    list[Annotated[str, WithJsonSchema({"type": "string", "enum": list(STATUS_NAMES)})]] | None,
    Query(description="May be repeated, or a list separated by commas."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=IDEMPOTENCY_KEY,
        description="Sent again with the same key, the action is not repeated.",
    ),
]


def operation(call: RequestContext, key: str | None) -> str | None:
    return None if key is None else f"{call.actor}:{key}"


@routes.add("GET", "/api/v1/jobs", "read", example=examples.JOB_PAGE)
async def list_jobs(  # noqa: PLR0913, PLR0917 - each is a filter of its own
    call: Here,
    user_id: User | None = None,
    status: Statuses = None,
    feature_name: Name | None = None,
    tag: Text | None = None,
    tier: Annotated[Name | None, Query(description="The tier it was submitted in.")] = None,
    service: Annotated[Name | None, Query(description="That of its present step.")] = None,
    region: Annotated[Name | None, Query(description="Where its last attempt ran.")] = None,
    model: Text | None = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
    limit: Limit = 50,
) -> TypedResponse[JobPageResponse]:
    """List jobs, newest first. A job that exists during the whole listing is on exactly one
    page."""
    key = call.identity.key if call.identity.acts_alone else None
    wanted = Filter(
        call.tenant,
        user_id,
        states(status),
        feature_name,
        tag,
        key=key,
        service=service,
        region=region,
        tier=tier,
        model=model,
    )
    return serializers.answer(await page(call, wanted, cursor_, limit))


async def page(
    call: RequestContext, wanted: Filter, given: str | None, limit: int
) -> JobPageResponse:
    listing = orjson.dumps(list(wanted)).decode()
    after = read_cursor(call.app_context.signer, listing, given)
    found = await call.engine.list_jobs(wanted, after, limit)
    first = await call.engine.first_starts(found.jobs)
    now = call.engine.clock.now()
    return {
        "jobs": [
            serializers.job(each, waited=each.waited_until(now), started_at=first.get(each.id))
            for each in found.jobs
        ],
        "next": cursor(call.app_context.signer, listing, found.next),
    }


def states(words: list[str] | None) -> tuple[State, ...]:
    found = []
    for word in (part for each in words or () for part in each.split(",")):
        state = STATUS_NAMES.get(word.strip().lower())
        if state is None:
            message = (
                f'unknown status "{word[:100]}"; known, in any case: {", ".join(STATUS_NAMES)}'
            )
            raise ProblemDetails(422, "invalid_input", message, more={"field": "status"})
        found.append(state)
    return tuple(dict.fromkeys(found))


@routes.add("GET", "/api/v1/jobs/{job_id}", "read", example=examples.JOB, problems=(404, 410))
async def get_job(call: Here, job_id: JobId) -> TypedResponse[JobResponse]:
    """Get a job with its position, its ETA and the outputs of its steps."""
    seen = await call.engine.view(checked(job_id), call.tenant)
    return serializers.answer(serializers.view(seen))


@routes.add(
    "GET",
    "/api/v1/jobs/{job_id}/attempts",
    "read",
    example=examples.ATTEMPTS,
    problems=(404, 410),
)
async def list_attempts(call: Here, job_id: JobId) -> TypedResponse[AttemptListResponse]:
    """List the ended attempts of a job, oldest first: where each ran, and how it ended."""
    await call.engine.view(checked(job_id), call.tenant)
    tried = await call.engine.attempts(job_id, call.tenant)
    return serializers.answer({"attempts": [serializers.attempt(each) for each in tried]})


@routes.add(
    "DELETE",
    "/api/v1/jobs/{job_id}",
    "client",
    example=examples.CANCELLED,
    problems=(404, 409, 410),
)
async def cancel_job(
    call: Here, job_id: JobId, key: IdempotencyKey = None
) -> TypedResponse[JobStateResponse]:
    """Cancel a job at once and permanently. A running call is told to stop, and its result is
    refused."""
    await call.engine.cancel(checked(job_id), call.tenant, operation(call, key))
    return serializers.answer({"job_id": job_id, "status": State.CANCELLED})


@routes.add(
    "POST",
    "/api/v1/jobs/{job_id}/resume",
    "client",
    example=examples.QUEUED_AGAIN,
    status=202,
    problems=(404, 409, 410),
)
async def resume_job(
    call: Here, job_id: JobId, key: IdempotencyKey = None
) -> TypedResponse[JobStateResponse]:
    """Continue from the failed step. Attempts already used still count. Only if
    `error.resumable`."""
    await call.engine.resume(checked(job_id), call.tenant, operation(call, key))
    return await moved(call, job_id)


@routes.add(
    "POST",
    "/api/v1/jobs/{job_id}/replay",
    "admin",
    example=examples.QUEUED_AGAIN,
    status=202,
    problems=(404, 409, 410),
)
async def replay_job(
    call: Here, job_id: JobId, key: IdempotencyKey = None
) -> TypedResponse[JobStateResponse]:
    """Continue a failed or dead job from the failed step, with all attempts again."""
    await call.engine.replay(checked(job_id), call.tenant, operation(call, key))
    return await moved(call, job_id)


async def moved(call: RequestContext, job_id: str) -> TypedResponse[JobStateResponse]:
    job = await call.engine.get(job_id, call.tenant)
    return serializers.answer({"job_id": job.id, "status": job.state}, 202)


@routes.add(
    "GET",
    "/api/v1/jobs/{job_id}/explain",
    "read",
    example=examples.EXPLANATION,
    problems=(404, 410),
)
async def explain_job(call: Here, job_id: JobId) -> TypedResponse[ExplanationResponse]:
    """Explain why a job waits, and what would help."""
    seen = await call.engine.view(checked(job_id), call.tenant)
    return serializers.answer(
        {
            "job_id": seen.job.id,
            "status": seen.job.state,
            "position": seen.position,
            "eta": serializers.eta(seen.eta),
            "reasons": [serializers.reason(each) for each in seen.reasons],
            "next_promotion_at": iso_or_none(seen.next_promotion_at),
            "changes": [serializers.reason(each) for each in _changes(seen)],
        }
    )


HELP = {
    "unrunnable": "start a worker that offers it",
    "busy": "a higher limit: PUT /admin/services/{name}",
    "rate": "a higher rate: PUT /admin/services/{name}",
    "paused": "open the service again: PUT /admin/services/{name}",
    "closed": "the service must answer again; it is probed by itself",
    "held": "a service that confirms that a call has ended: cancel_path in [services.{name}]",
    "user_running": "one of your running jobs must end first",
    "own": "your jobs take turns with those of others; cancel what you need less",
}


SKIP_USELESS = frozenset({"unrunnable", "paused", "closed"})
"""Reasons for which a paid skip would not help: the queue does not move."""


def _changes(seen: JobDetail) -> list[WaitReason]:
    job, service = seen.job, seen.job.current.service
    found = [
        WaitReason(each.code, HELP[each.code].format(name=service))
        for each in seen.reasons
        if each.code in HELP
    ]
    is_payable = job.user is not None and job.band is not Band.SKIP and not job.fan_out
    skip_useless = any(each.code in SKIP_USELESS for each in seen.reasons)
    if job.state is State.QUEUED and is_payable and not skip_useless:
        found.append(WaitReason("skip", f"pay for the front: POST /api/v1/jobs/{job.id}/skip"))
    if job.error is not None and job.error.resumable:
        found.append(WaitReason("resume", f"go on: POST /api/v1/jobs/{job.id}/resume"))
    if job.state is State.DEAD:
        found.append(
            WaitReason("replay", f"try again from here: POST /api/v1/jobs/{job.id}/replay")
        )
    return found
