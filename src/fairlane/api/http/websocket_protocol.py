"""The WebSocket protocol: small per connection, and bounded in what a peer may send."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from fairlane.api.http.write_timeout import WriteTimeout

MAX_FRAMES_PER_MINUTE = 600
"""Pings and fragments count. A listener needs none, and answers a ping of ours every 20 s."""

SLICE_BYTES = 1 << 10
"""Parsed at once, so that a flood of tiny frames is noticed before all of it is parsed."""

TOO_MANY_FRAMES = 1008


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Frames are bounded in number, and what a peer does not read in size."""

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

    # --- what comes in ---------------------------------------------------------------------------
    def handle_connect(self, event: Request) -> None:
        """Nothing more is read until the handshake is answered."""
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
        """A peer that does not read gets no pongs: RFC 6455 asks only for one to its last ping."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    # --- what goes out ---------------------------------------------------------------------------
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
        """Who was refused has been answered: that is no error."""
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
    """What has come and was not heard yet, for one who listens: a queue of a tenth of the size."""

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
