"""The HTTP server: sockets, signals and graceful shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn

from fairlane.api.app import App
from fairlane.api.http.protocol import HttpProtocol
from fairlane.api.http.websocket_limits import WebSocketProtocol
from fairlane.background import end
from fairlane.config.settings import ServerSettings
from fairlane.errors import SetupError

MAX_WEBSOCKET_MESSAGE_BYTES = 64 << 10
ACCEPTS_PER_LOOP_TURN = 16
"""Connections accepted in one turn of the event loop. The loop accepts one per listening socket,
so the socket is duplicated."""

Drain = Callable[[float], Awaitable[None]]


def listening(app: App, server: ServerSettings) -> uvicorn.Config:
    logging.getLogger("uvicorn.access").disabled = True  # the guard writes its own, without queries
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # lower levels log tickets, keys
    return uvicorn.Config(
        app,
        host=server.host,
        port=server.port,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_max_size=MAX_WEBSOCKET_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(server.grace)),
    )


def bind(server: ServerSettings) -> socket.socket:
    """Returns a listening socket. Raises SetupError if the port cannot be used."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((server.host, server.port))
        found.listen(2048)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise SetupError(f"port {server.port} is taken; choose another with --port") from None
        raise SetupError(
            f"cannot listen on {server.host}:{server.port}: {error.strerror}"
        ) from None
    return found


class ApiServer(uvicorn.Server):
    """The uvicorn server with a graceful shutdown. On SIGTERM or Ctrl-C it is not ready at once,
    `drain` waits for running calls, and then open requests end. A second signal stops it now."""

    def __init__(self, app: App, server: ServerSettings, drain: Drain | None = None) -> None:
        super().__init__(listening(app, server))
        self._app, self._grace, self._drain = app, server.grace, drain
        self._leaving: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run_on(self, found: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        await self.serve([found, *(found.dup() for _ in range(ACCEPTS_PER_LOOP_TURN - 1))])
        await end(self._leaving)
        if self.force_exit:  # uvicorn skips the lifespan's end after a second Ctrl-C
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del frame
        if self._leaving is not None or self._loop is None:
            self.should_exit = True
            self.force_exit = sig == signal.SIGINT
            return
        self._app.app_context.draining = True
        self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        if self._leaving is None:
            self._app.app_context.worker_service.end_polls()
            self._leaving = asyncio.create_task(self._end())

    async def _end(self) -> None:
        try:
            if self._drain is not None:
                await self._drain(self._grace)
        finally:
            self._app.app_context.drain()
            self.should_exit = True
