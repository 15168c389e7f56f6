"""The WebSocket of the dashboard: the state of the system once a second, first whole, then what has
changed."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from fairlane.api.auth.roles import Identity
from fairlane.api.context import AppContext
from fairlane.api.routes.server_sent_events import event_number
from fairlane.api.routes.websocket import (
    GOING_AWAY,
    KEY_NOT_VALID,
    ONLY_TEXT,
    SEND_TIMEOUT_SECONDS,
    TRY_LATER,
)
from fairlane.api.routing import Routes
from fairlane.dashboard.audience import ADMINISTRATORS, Audience
from fairlane.dashboard.broadcast import Broadcast
from fairlane.model.key import Role

routes = Routes("dashboard")
log = logging.getLogger("fairlane.api")

KEY_CHECK_SECONDS = 15.0
MAX_TOPICS = 4
"""Services that one viewer may watch at a time."""

TOPIC = "service:"


def audience_of(identity: Identity) -> Audience:
    if identity.role is Role.ADMIN:
        return ADMINISTRATORS
    return Audience(identity.tenant, identity.key if identity.acts_alone else None)


@routes.socket("/ws", "read")
async def watch_dashboard(socket: WebSocket) -> None:
    """Send frames. Close codes: 1012 this process stops, 1013 the client reads too slowly, 1003 the
    client sent a message that is not text, 4401 the key is no longer valid."""
    await socket.accept()
    viewer = Viewer(socket)
    sending = asyncio.create_task(viewer.send_and_close())
    try:
        await viewer.read_until_disconnect()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        viewer.leave()


class Viewer:
    """One connection. At most one message waits to be sent: a newer frame replaces it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._app_context: AppContext = socket.scope["app_context"]
        self._identity: Identity = socket.scope["identity"]
        self._audience = audience_of(self._identity)
        self._sampler = self._app_context.sampler
        self._after = event_number(socket.query_params.get("after", ""), 0)
        self._topics: set[str] = set()
        self._joined = False

    # --- sending -----------------------------------------------------------------------------
    async def send_and_close(self) -> None:
        with suppress(RuntimeError, WebSocketDisconnect):  # already disconnected
            try:
                code = await self._send_frames()
            except TimeoutError:
                code = TRY_LATER
            except Exception:
                log.exception("a viewer could not be sent more")
                code = GOING_AWAY
            await self._socket.close(code)

    async def _send_frames(self) -> int:
        """Sends frames. Returns the close code."""
        broadcast = await self._sampler.join(self._audience)
        self._joined = True
        missed, number = broadcast.since(self._after), broadcast.number
        for message in missed:
            await self._send(message)
        check_at = time.monotonic() + KEY_CHECK_SECONDS
        while not self._app_context.draining:
            if broadcast.number == number:
                await broadcast.changed()
            if broadcast.number != number:
                message, number = broadcast.newest(number), broadcast.number
                await self._send(message)
                await self._send_details(broadcast, number)
            if time.monotonic() >= check_at:
                check_at = time.monotonic() + KEY_CHECK_SECONDS
                if not await self._is_valid():
                    return KEY_NOT_VALID
        return GOING_AWAY

    async def _is_valid(self) -> bool:
        """Whether the key, and the session if there is one, are still valid."""
        app_context, session = self._app_context, self._socket.scope.get("session")
        now = app_context.engine.clock.now()
        if session is not None and not await app_context.sessions.is_open(session, now):
            return False
        return await app_context.key_cache.still(self._identity)

    async def _send_details(self, broadcast: Broadcast, number: int) -> None:
        for service in sorted(self._topics):
            message = self._sampler.detail(self._audience, service)
            if message is not None and broadcast.number == number:
                await self._send(message)

    async def _send(self, message: str) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
            await self._socket.send_text(message)

    # --- receiving ---------------------------------------------------------------------------
    async def read_until_disconnect(self) -> None:
        while (said := await self._socket.receive())["type"] != "websocket.disconnect":
            text = said.get("text")
            if text is None:
                with suppress(RuntimeError):  # already disconnected
                    await self._socket.close(ONLY_TEXT)
                return
            self._hear(text)

    def _hear(self, text: str) -> None:
        """Changes the watched services. Other messages are ignored."""
        try:
            said = orjson.loads(text)
        except orjson.JSONDecodeError:
            return
        if not isinstance(said, dict):
            return
        wanted, unwanted = said.get("watch"), said.get("unwatch")
        if isinstance(wanted, str) and wanted.startswith(TOPIC):
            service = wanted.removeprefix(TOPIC)
            if service not in self._topics and len(self._topics) < MAX_TOPICS:
                self._topics.add(service)
                self._sampler.watch(self._audience, service)
        if isinstance(unwanted, str) and unwanted.removeprefix(TOPIC) in self._topics:
            service = unwanted.removeprefix(TOPIC)
            self._topics.discard(service)
            self._sampler.unwatch(self._audience, service)

    def leave(self) -> None:
        for service in self._topics:
            self._sampler.unwatch(self._audience, service)
        self._topics.clear()
        if self._joined:
            self._sampler.leave(self._audience)
