"""The feed of frames over the dashboard's WebSocket: a whole frame first, then deltas. It connects
again after a break and continues where it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from fairlane.dashboard.delta import Delta, applied

Json = Any

RECONNECT_SECONDS = 1.0
SILENT_SECONDS = 10.0
"""A server sends a frame every second. After this time without one, the feed connects again."""

REFUSED = frozenset({400, 401, 403, 404, 421})
"""Statuses after which another attempt does not help."""

KEY_NOT_VALID = 4401
MAX_FRAME_BYTES = 64 << 20


class FeedRefused(Exception):
    """The server does not give frames to this caller."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server refused with status {status}")
        self.status = status


class Shown(NamedTuple):
    """What there is to show: the newest frame (None before the first one), and why there is no
    newer one (empty while frames arrive)."""

    frame: dict[str, Json] | None
    problem: str = ""


async def feed(url: str, key: str | None) -> AsyncGenerator[Shown, None]:
    """Yields at every frame, and when the connection breaks. Raises FeedRefused."""
    frame: dict[str, Json] | None = None
    number = 0
    while True:
        try:
            async with aclosing(_messages(_address(url, number), key)) as messages:
                async for message in messages:
                    frame, number = _next(frame, message), int(message["n"])
                    yield Shown(frame)
        except BREAKS as error:
            if isinstance(error, KeyError):
                number = 0  # begin with a whole frame
            yield Shown(frame, _problem(error))
        await asyncio.sleep(RECONNECT_SECONDS)


async def _messages(address: str, key: str | None) -> AsyncGenerator[dict[str, Json], None]:
    """The frames and deltas of one connection."""
    headers = {"Authorization": f"Bearer {key}"} if key else None
    options: dict[str, Any] = {"max_size": MAX_FRAME_BYTES, "proxy": None}
    async with connect(address, additional_headers=headers, **options) as socket:
        while True:
            async with asyncio.timeout(SILENT_SECONDS):
                message = orjson.loads(await socket.recv())
            if "n" in message:
                yield message


BREAKS = (ConnectionClosed, InvalidHandshake, OSError, TimeoutError, KeyError)
"""What ends a connection. KeyError: a delta does not fit the frame before it."""


def _problem(error: Exception) -> str:
    """Why there is no newer frame. Raises FeedRefused if another attempt does not help."""
    match error:
        case InvalidStatus() if error.response.status_code in REFUSED:
            raise FeedRefused(error.response.status_code)
        case ConnectionClosed() if error.rcvd is not None and error.rcvd.code == KEY_NOT_VALID:
            raise FeedRefused(401)
        case ConnectionClosed():
            return "the connection was closed"
        case TimeoutError():
            return f"no frame for {SILENT_SECONDS:g} s"
        case KeyError():
            return "a frame did not fit the one before"
        case _:
            return f"the server does not answer ({type(error).__name__})"


def _next(frame: dict[str, Json] | None, message: dict[str, Json]) -> dict[str, Json]:
    if "full" in message:
        found: dict[str, Json] = message["full"]
        return found
    if frame is None:
        raise KeyError("a delta without a frame")
    return applied(frame, Delta(message["set"], message["gone"]))


def _address(url: str, after: int) -> str:
    parts = urlsplit(url.rstrip("/"))
    scheme = "wss" if parts.scheme == "https" else "ws"
    query = f"after={after}" if after else ""
    return parts._replace(scheme=scheme, path=f"{parts.path}/ws", query=query).geturl()
