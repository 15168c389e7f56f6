"""A WebSocket on the wire. It stays open for hours, a thousand beside each other, so it carries as
little as possible."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class Socket(WebSocketsSansIOProtocol):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.queue = Inbox()  # type: ignore[assignment]

    async def send(self, message: Any) -> None:
        """Who was refused has been answered: that is no error."""
        await super().send(message)
        self.handshake_complete |= self.close_sent
        if message["type"] == "websocket.accept":
            del self.request, self.response


class Inbox:
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
