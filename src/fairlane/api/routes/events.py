"""Event routes: the events of a job as a list, as server-sent events or over a WebSocket. Stored
events come first, then live events, without a gap."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated

import orjson
from fastapi import Header, Query
from starlette.responses import StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from fairlane.api.auth.ownership import check_own, checked
from fairlane.api.auth.roles import Identity
from fairlane.api.auth.tickets import issue
from fairlane.api.context import AppContext, Here, RequestContext
from fairlane.api.event_stream import LastStanding, ListenerPause, News
from fairlane.api.http.problem_details import no_job
from fairlane.api.routes.jobs import JobId
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import iso
from fairlane.errors import Expired, NotFound
from fairlane.model.event import Event
from fairlane.model.job import Progress
from fairlane.responses import EventResponse, TicketResponse, UpdateResponse

log = logging.getLogger("fairlane.api")
routes = Routes("events")

SSE = "text/event-stream"
NO_BUFFERING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers that keep proxies from caching or buffering the stream."""

SEND_TIMEOUT_SECONDS = 10.0
"""The timeout for sending one message to a client."""

NUMBER = re.compile(r"[0-9]{1,15}")

ONLY_TEXT, GOING_AWAY, TRY_LATER, NO_SUCH_JOB, KEY_NOT_VALID = 1003, 1012, 1013, 4404, 4401


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
    await _own(call.app_context, call.identity, checked(job_id))
    if SSE in accept:
        seen = _number(last_event_id, after)
        return StreamingResponse(_sse(call, job_id, seen), media_type=SSE, headers=NO_BUFFERING)
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
    await _own(call.app_context, call.identity, checked(job_id))
    now = call.engine.clock.now()
    text, ticket = issue(call.app_context.signer, call.identity.key, job_id, now)
    return serializers.answer({"ticket": text, "expires_at": iso(ticket.until)})


def _number(text: str, otherwise: int) -> int:
    return int(text) if NUMBER.fullmatch(text) else otherwise


async def _own(app_context: AppContext, identity: Identity, job_id: str) -> None:
    if identity.job not in (None, job_id):
        raise no_job(job_id)
    await check_own(app_context, identity, job_id)


# --- server-sent events --------------------------------------------------------------------------
async def _sse(call: RequestContext, job_id: str, after: int) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    async with aclosing(call.app_context.event_stream.stream(job_id, after)) as stream:
        async for news in stream:
            if isinstance(news, ListenerPause):
                if not await call.app_context.key_cache.still(call.identity):
                    return
                yield b": still here\n\n"
                continue
            update = message(job_id, news)
            lines = [b"event: " + update["type"].encode(), b"data: " + orjson.dumps(update)]
            if isinstance(news, Event):
                lines.insert(0, b"id: %d" % news.seq)
            yield b"\n".join(lines) + b"\n\n"


def message(job_id: str, news: News) -> EventResponse | UpdateResponse:
    match news:
        case Event():
            return serializers.event(news)
        case LastStanding():
            data = {"position": news.position, "eta": serializers.eta(news.eta)}
            return {"type": "POSITION", "job_id": job_id, "data": data}
        case Progress():
            return {"type": "PROGRESS", "job_id": job_id, "data": serializers.progress(news)}
        case ListenerPause():
            return {"type": "PAUSE", "job_id": job_id, "data": {}}


# --- WebSocket -----------------------------------------------------------------------------------
@routes.socket("/ws/{job_id}", "events")
async def listen(socket: WebSocket) -> None:
    """Send the events of a job. Close codes: 1000 the job has ended, 1012 this process stops, 1013
    the client reads too slowly, 1003 the client sent a message that is not text, 4401 the key is no
    longer valid, 4404 there is no such job."""
    app_context: AppContext = socket.scope["app_context"]
    identity: Identity = socket.scope["identity"]
    job_id = socket.path_params["job_id"]
    await socket.accept()
    try:
        await _own(app_context, identity, checked(job_id))
    except (NotFound, Expired, type(no_job(""))):
        await socket.close(NO_SUCH_JOB)
        return
    after = _number(socket.query_params.get("after", ""), 0)
    sending = asyncio.create_task(_send_and_close(socket, app_context, identity, job_id, after))
    try:
        await _read_until_disconnect(socket)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send_and_close(
    socket: WebSocket, app_context: AppContext, identity: Identity, job_id: str, after: int
) -> None:
    """Sends all events, then closes the WebSocket with a code."""
    with suppress(RuntimeError, WebSocketDisconnect):  # already disconnected
        try:
            code = await _send_events(socket, app_context, identity, job_id, after)
        except Exception:
            log.exception("a listener could not be told more")
            code = GOING_AWAY
        await socket.close(code)


async def _send_events(
    socket: WebSocket, app_context: AppContext, identity: Identity, job_id: str, after: int
) -> int:
    """Sends all events. Returns the close code."""
    async with aclosing(app_context.event_stream.stream(job_id, after)) as stream:
        async for news in stream:
            if isinstance(news, ListenerPause):
                if not await app_context.key_cache.still(identity):
                    return KEY_NOT_VALID
                continue
            try:
                async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                    await socket.send_text(orjson.dumps(message(job_id, news)).decode())
            except TimeoutError:
                return TRY_LATER
    return GOING_AWAY if app_context.draining else 1000


async def _read_until_disconnect(socket: WebSocket) -> None:
    """Reads and ignores text messages until the client disconnects."""
    while (said := await socket.receive())["type"] != "websocket.disconnect":
        if said.get("text") is None:
            with suppress(RuntimeError):  # already disconnected
                await socket.close(ONLY_TEXT)
            return
