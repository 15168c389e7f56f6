"""The place of one job for its end user: a signed link that needs no key, and the timeline of a
job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, NamedTuple

import orjson
from fastapi import Body, Path, Request
from starlette.responses import StreamingResponse

from fairlane.api.auth.ownership import checked
from fairlane.api.context import AppContext, Here
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routes.jobs import JobId
from fairlane.api.routes.server_sent_events import NO_BUFFERING, SSE
from fairlane.api.routing import Routes
from fairlane.api.schemas import serializers
from fairlane.api.schemas.dashboard import (
    LINK,
    PLACE,
    TIMELINE,
    LinkRequest,
    LinkResponse,
    PlaceResponse,
    SpanResponse,
    TimelineResponse,
)
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import iso, seconds
from fairlane.api.signing import Signer
from fairlane.engine.queries import JobDetail
from fairlane.engine.timeline import SpanKind, TimelineSpan, timeline, totals
from fairlane.errors import Expired, NotFound
from fairlane.model.file_result import FileResult
from fairlane.model.job_result import result_of
from fairlane.model.state import State
from fairlane.units import SECOND

routes = Routes("place")

CHECK_SECONDS = 5.0
"""Seconds between two checks that a link is still valid while its events are followed."""

MAX_RESULT_BYTES = 64 << 10
"""Larger results are not part of a place."""

Token = Annotated[str, Path(max_length=1000, examples=["WyJqb2IiXQ.7c9d2e1f"])]
PAUSES = {
    State.COMPLETED: "completed",
    State.CANCELLED: "cancelled",
    State.FAILED: "failed",
    State.DEAD: "failed",
}


class PlaceLink(NamedTuple):
    """A link to one job. It ends at `until`, or with the key that made it."""

    job: str
    key: str
    until: int


@routes.add(
    "POST", "/api/v1/jobs/{job_id}/link", "read", example=LINK, status=201, problems=(404, 410)
)
async def create_link(
    call: Here, job_id: JobId, body: Annotated[LinkRequest | None, Body()] = None
) -> TypedResponse[LinkResponse]:
    """Create a link for the end user of a job: it shows the place of this job and nothing of
    others. It needs no key, and ends with the key that made it."""
    job = await call.engine.get(checked(job_id), call.tenant)
    wanted = body or LinkRequest()
    until = call.engine.clock.now() + wanted.expires_seconds * SECOND
    token = call.app_context.signer.sign("place", [job.id, call.identity.key, until])
    return serializers.answer({"url": f"/p/{token}", "expires_at": iso(until)}, 201)


@routes.add("GET", "/api/v1/place/{token}", "public", example=PLACE, problems=(404,))
async def get_place(request: Request, token: Token) -> TypedResponse[PlaceResponse]:
    """Get the place of a job by its link: position, ETA, progress, and its result at the end."""
    app_context: AppContext = request.scope["app_context"]
    return serializers.answer(await _place(app_context, await _opened(app_context, token)))


@routes.add_file(
    "/api/v1/place/{token}/events",
    "public",
    SSE,
    example=f"event: place\ndata: {orjson.dumps(PLACE).decode()}\n\n",
    problems=(404,),
)
async def follow_place(request: Request, token: Token) -> StreamingResponse:
    """Follow the place of a job: server-sent events of type `place` until the job has ended."""
    app_context: AppContext = request.scope["app_context"]
    link = await _opened(app_context, token)
    return StreamingResponse(_places(app_context, link), media_type=SSE, headers=NO_BUFFERING)


async def _opened(app_context: AppContext, token: str) -> PlaceLink:
    """Returns the link. Raises 404 if it is not valid, or over."""
    link = _read(app_context.signer, token)
    if link is not None and await _is_valid(app_context, link):
        return link
    raise ProblemDetails(404, "not_found", "this link is not valid any more; ask for a new one")


def _read(signer: Signer, token: str) -> PlaceLink | None:
    found = signer.read("place", token)
    return PlaceLink(*found) if found is not None else None


async def _is_valid(app_context: AppContext, link: PlaceLink) -> bool:
    if app_context.engine.clock.now() >= link.until:
        return False
    return await app_context.key_cache.named(link.key) is not None


async def _places(app_context: AppContext, link: PlaceLink) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    last: PlaceResponse | None = None
    stream = app_context.event_stream.stream(link.job, 0, CHECK_SECONDS)
    async with aclosing(stream):
        async for _ in stream:
            if not await _is_valid(app_context, link):
                return
            place = await _place(app_context, link)
            if place != last:
                last = place
                yield b"event: place\ndata: " + orjson.dumps(place) + b"\n\n"


async def _place(app_context: AppContext, link: PlaceLink) -> PlaceResponse:
    engine = app_context.engine
    try:
        seen = await engine.view(link.job)
    except (NotFound, Expired) as error:
        raise ProblemDetails(404, "not_found", "the record of this job was removed") from error
    job = seen.job
    ahead = (seen.position or 1) - 1
    usual = engine.monitor.usual_seconds(job.current.service)
    found: PlaceResponse = {
        "status": PAUSES.get(job.state, str(job.state)),
        "position": seen.position,
        "eta": serializers.eta(seen.eta),
        "ahead": None
        if seen.position is None
        else {"jobs": ahead, "seconds": round(ahead * usual, 1)},
        "progress": serializers.progress(job.progress) if job.state is State.RUNNING else None,
        "feature_name": job.name,
        "message": _message(seen, ahead),
    }
    if job.state is State.COMPLETED:
        result = result_of(job, seen.context)
        if FileResult.read(result) is None and len(orjson.dumps(result)) <= MAX_RESULT_BYTES:
            found["result"] = result
    elif job.error is not None and not job.live:
        found["error"] = job.error.message or str(job.error.code)
    return found


def _message(seen: JobDetail, ahead: int) -> str:
    job = seen.job
    steps = f" (step {job.step + 1} of {len(job.plan)})" if len(job.plan) > 1 else ""
    match job.state:
        case State.QUEUED if seen.position is None:
            return f"waits{steps}"
        case State.QUEUED if ahead == 0:
            return f"is next{steps}"
        case State.QUEUED:
            jobs = "1 job is" if ahead == 1 else f"{ahead} jobs are"
            return f"{jobs} before it{steps}"
        case State.RUNNING:
            return f"is running{steps}"
        case State.CANCELLED:
            return "is cancelled"
        case _:
            return f"has {PAUSES[job.state]}"


# --- the timeline --------------------------------------------------------------------------------
@routes.add(
    "GET",
    "/api/v1/jobs/{job_id}/timeline",
    "read",
    example=TIMELINE,
    problems=(404, 410),
)
async def get_timeline(call: Here, job_id: JobId) -> TypedResponse[TimelineResponse]:
    """Get the time line of a job: when each attempt ran, and why it waited in between."""
    engine = call.engine
    seen = await engine.view(checked(job_id), call.tenant)
    tried = await engine.attempts(job_id, call.tenant)
    now = engine.clock.now()
    spans = timeline(seen, tried, await engine.stored_events(job_id), now)
    sums = totals(spans, now)
    return serializers.answer(
        {
            "spans": [_span(each) for each in spans],
            "totals": {
                "running": seconds(sums[SpanKind.RUNNING]),
                "waiting": seconds(sums[SpanKind.WAITING]),
                "backoff": seconds(sums[SpanKind.BACKOFF]),
                "unavailable": seconds(sums[SpanKind.UNAVAILABLE]),
            },
        }
    )


def _span(span: TimelineSpan) -> SpanResponse:
    return {
        "kind": span.kind.value,
        "step": span.step,
        "service": span.service,
        "attempt": span.attempt,
        "from": span.since // 1000,
        "to": None if span.until is None else span.until // 1000,
        "region": span.region,
        "outcome": span.outcome,
        "note": span.note,
    }
