"""The first bytes of a connection: bounded before anybody knows who sends them."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from fairlane.api.body import too_slow
from fairlane.api.problems import Problem, respond
from fairlane.ids import Tokens

IDS = Tokens()
MOST_BYTES = 64 << 10
"""Of the head of a request, more or less; the guard says exactly how much headers may be."""


class Connection(HttpToolsProtocol):
    """The head of a request comes within a time and a size. What comes after its body is no
    header: a proxy would not have looked at it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._asked, self._in_head, self._bytes = False, True, 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        if not self._in_head:
            return
        if self._bytes > MOST_BYTES:
            self._refuse(Problem(431, "headers_too_large", "at most 16 KiB of headers"))
        elif self._patience is None:
            self._wait()

    def on_message_begin(self) -> None:
        self._asked, self._in_head, self._bytes = True, True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait_no_longer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        del msg
        self._refuse(Problem(400, "malformed_request", "this is not HTTP"))

    def handle_websocket_upgrade(self) -> None:
        """The head is read once more, by somebody with other bounds, who would leave it at that."""
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        if isinstance(socket, Socket) and not socket.handshake_initiated:
            self._refuse(Problem(400, "malformed_request", "this opens no WebSocket"))

    def _wait(self) -> None:
        seconds = self.config.app.door.bounds.seconds  # type: ignore[union-attr]
        self._patience = self.loop.call_later(seconds, self._give_up, seconds)

    def _wait_no_longer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self, seconds: float) -> None:
        if not self._asked:
            self.transport.close()  # nothing was ever asked
        else:
            self._refuse(too_slow(seconds))

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        answer = respond(problem, "", IDS.new())
        headers = [b"%s: %s\r\n" % pair for pair in answer.raw_headers if pair[0] != b"connection"]
        head = [STATUS_LINE[problem.status_code], *headers, b"connection: close\r\n\r\n"]
        self.transport.write(b"".join(head) + bytes(answer.body))
        self.transport.close()


class Socket(WebSocketsSansIOProtocol):
    async def send(self, message: Any) -> None:
        """Who was refused has been answered: that is no error."""
        await super().send(message)
        self.handshake_complete |= self.close_sent
