"""Server-sent events (SSE): the stream of a job's events. A WebSocket sends the same messages."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing

import orjson

from fairlane.api.context import RequestContext
from fairlane.api.event_listeners import LastStanding, ListenerPause, News
from fairlane.api.schemas import serializers
from fairlane.model.event import Event
from fairlane.model.job import Progress
from fairlane.responses import EventResponse, UpdateResponse

SSE = "text/event-stream"

NO_BUFFERING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers that keep proxies from caching or buffering the stream."""

KEEP_ALIVE_SECONDS = 15.0
"""Seconds between two checks that the listener is connected and its key is valid. Then a comment is
sent."""

NUMBER = re.compile(r"[0-9]{1,15}")


def event_number(text: str, otherwise: int) -> int:
    """The number of the last event that the client has received, from `Last-Event-ID`."""
    return int(text) if NUMBER.fullmatch(text) else otherwise


async def sse(call: RequestContext, job_id: str, after: int) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    async with aclosing(
        call.app_context.event_stream.stream(job_id, after, KEEP_ALIVE_SECONDS)
    ) as stream:
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
