"""Response headers that every response has, and a record of the status that was sent."""

from __future__ import annotations

from starlette.types import Message, Scope, Send


class ReplyGuard:
    """Wraps `send`: adds the request id and the security headers, and records the status."""

    __slots__ = ("_send", "hot", "request_id", "scope", "started", "status")

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self.scope, self._send, self.request_id = scope, send, request_id
        self.started, self.status, self.hot = False, 0, False

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self.started, self.status = True, message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self.request_id.encode()),
                (b"x-content-type-options", b"nosniff"),
                (b"referrer-policy", b"no-referrer"),
            ]
        elif kind == "websocket.accept":
            self.started, self.status = True, 101
        await self._send(message)
