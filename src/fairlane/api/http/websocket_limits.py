"""The WebSocket protocol of one connection, with little memory per connection and with limits on
what a peer may send."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from fairlane.api.http.write_timeout import WriteTimeout

MAX_FRAMES_PER_MINUTE = 600
"""The limit includes pings and fragments. A client only needs to send a pong every 20 s."""

SLICE_BYTES = 1 << 10
"""Bytes parsed in one step, so that a flood of tiny frames is detected before all are parsed."""

TOO_MANY_FRAMES = 1008


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Limits the frames a peer may send, and the bytes that wait for a peer that does not read."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.queue = WebSocketInbox()  # type: ignore[assignment]
        self._frames, self._minute_began = 0, 0.0
        self._writes: WriteTimeout | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching_writes()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        self._watch_writes()

    # --- receiving -------------------------------------------------------------------------------
    def handle_connect(self, event: Request) -> None:
        """Pauses reading until the handshake is answered."""
        super().handle_connect(event)
        self.read_paused = True
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            return
        for start in range(0, len(data), SLICE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + SLICE_BYTES])

    def handle_events(self) -> None:
        if not self.handshake_complete or not self._is_flooded(len(self.conn.events)):
            super().handle_events()
        elif not self.transport.is_closing():
            self.conn.fail(TOO_MANY_FRAMES, f"at most {MAX_FRAMES_PER_MINUTE} frames a minute")
            self.handle_parser_exception()
            self._watch_writes()

    def _is_flooded(self, frames: int) -> bool:
        now = self.loop.time()
        if now - self._minute_began >= 60:
            self._frames, self._minute_began = 0, now
        self._frames += frames
        return self._frames > MAX_FRAMES_PER_MINUTE

    def handle_ping(self) -> None:
        """Sends no pong to a peer that does not read. RFC 6455 requires only a pong to the last
        ping."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    # --- sending ---------------------------------------------------------------------------------
    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_watching_writes()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._watch_writes()

    async def send(self, message: Any) -> None:
        """Marks a refused handshake as complete, so that uvicorn does not log an error."""
        await super().send(message)
        self.handshake_complete |= self.close_sent
        if message["type"] == "websocket.accept":
            del self.request, self.response

    def _watch_writes(self) -> None:
        if self._writes is None:
            self._writes = WriteTimeout(self.loop)
        self._writes.start(self.transport)

    def _stop_watching_writes(self) -> None:
        if self._writes is not None:
            self._writes.stop()
            self._writes = None


class WebSocketInbox:
    """The received messages of one connection. It is a queue with one reader that takes a tenth of
    the memory of `asyncio.Queue`."""

    __slots__ = ("_come", "_waiting")

    def __init__(self) -> None:
        self._come: list[Any] = []
        self._waiting: asyncio.Future[None] | None = None

    def empty(self) -> bool:
        return not self._come

    def put_nowait(self, message: Any) -> None:
        self._come.append(message)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def get(self) -> Any:
        while not self._come:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._come.pop(0)
