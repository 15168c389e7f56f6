"""Event routes: the events of a job as a list or as server-sent events; tickets for browsers."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query
from starlette.responses import StreamingResponse

from fairlane.api.auth.ownership import check_own, checked
from fairlane.api.auth.roles import Identity
from fairlane.api.auth.tickets import issue
from fairlane.api.context import AppContext, Here
from fairlane.api.http.problem_details import no_job
from fairlane.api.routes.jobs import JobId
from fairlane.api.routes.server_sent_events import NO_BUFFERING, SSE, event_number, sse
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import iso
from fairlane.responses import EventResponse, TicketResponse

routes = Routes("events")


@routes.add(
    "GET",
    "/api/v1/jobs/{job_id}/events",
    "events",
    example=examples.EVENTS,
    texts={SSE: examples.EVENT_STREAM},
    problems=(404, 410),
)
async def get_events(
    call: Here,
    job_id: JobId,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    last_event_id: Annotated[str, Header(alias="Last-Event-ID", include_in_schema=False)] = "",
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    ticket: Annotated[str, Query(include_in_schema=False)] = "",  # noqa: ARG001 - the guard reads it
) -> TypedResponse[list[EventResponse]] | StreamingResponse:
    """List the stored events of a job. With `Accept: text/event-stream`, new events follow until
    the job has ended. `Last-Event-ID` or `after` is the number of the last event received."""
    await check_may_listen(call.app_context, call.identity, checked(job_id))
    if SSE in accept:
        seen = event_number(last_event_id, after)
        return StreamingResponse(sse(call, job_id, seen), media_type=SSE, headers=NO_BUFFERING)
    found = await call.engine.stored_events(job_id, after)
    return serializers.answer([serializers.event(each) for each in found])


@routes.add(
    "POST",
    "/api/v1/jobs/{job_id}/ticket",
    "read",
    example=examples.TICKET,
    problems=(404, 410),
)
async def issue_ticket(call: Here, job_id: JobId) -> TypedResponse[TicketResponse]:
    """Create a ticket for a browser, which cannot send a key with an event stream. `?ticket=` is
    valid once, within 30 s, for the events of this job."""
    await check_may_listen(call.app_context, call.identity, checked(job_id))
    now = call.engine.clock.now()
    text, ticket = issue(call.app_context.signer, call.identity.key, job_id, now)
    return serializers.answer({"ticket": text, "expires_at": iso(ticket.until)})


async def check_may_listen(app_context: AppContext, identity: Identity, job_id: str) -> None:
    if identity.job not in (None, job_id):
        raise no_job(job_id)
    await check_own(app_context, identity, job_id)
