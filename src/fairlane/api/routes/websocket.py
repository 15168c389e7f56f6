"""The WebSocket route: the events of a job, stored events first, then live ones, without a gap."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from fairlane.api.auth.ownership import checked
from fairlane.api.auth.roles import Identity
from fairlane.api.context import AppContext
from fairlane.api.event_listeners import ListenerPause
from fairlane.api.http.problem_details import no_job
from fairlane.api.routes.events import check_may_listen
from fairlane.api.routes.server_sent_events import KEEP_ALIVE_SECONDS, event_number, message
from fairlane.api.routing import Routes
from fairlane.errors import Expired, NotFound

routes = Routes("events")

ONLY_TEXT, GOING_AWAY, TRY_LATER, NO_SUCH_JOB, KEY_NOT_VALID = 1003, 1012, 1013, 4404, 4401
"""Close codes."""

log = logging.getLogger("fairlane.api")

SEND_TIMEOUT_SECONDS = 10.0
"""The timeout for sending one message to a client."""


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
        await check_may_listen(app_context, identity, checked(job_id))
    except (NotFound, Expired, type(no_job(""))):
        await socket.close(NO_SUCH_JOB)
        return
    after = event_number(socket.query_params.get("after", ""), 0)
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
    async with aclosing(
        app_context.event_stream.stream(job_id, after, KEEP_ALIVE_SECONDS)
    ) as stream:
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
