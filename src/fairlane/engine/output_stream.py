"""Streamed output of running steps: chunks pass from the process that runs a step to the listeners
of its job, over pub/sub between processes. They are not stored, and they are dropped where they do
not fit. Decision 27 has the bounds and the interleavings."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from fairlane.index.index import Index
from fairlane.model.job import Json
from fairlane.model.lease import Lease

MAX_CHUNK_BYTES = 1 << 16
"""A longer chunk is dropped."""

MAX_QUEUED_BYTES = 1 << 20
"""Bytes of chunks that one listener has not taken yet."""

CHUNK_COST_BYTES = 200
"""What an empty chunk counts for."""


class OutputChunk(NamedTuple):
    """A chunk as its listener sees it. `attempt` is the number of the job's lease so far: with a
    new one the output begins again. `number` counts the chunks of an attempt from 0, `dropped` the
    missing ones before this. `output` is JSON text."""

    step: int
    service: str
    attempt: int
    number: int
    dropped: int
    output: str


class OutputListener:
    """The chunks of one job for one listener. `ready` is set when there are some."""

    def __init__(self, ready: asyncio.Event) -> None:
        self._ready = ready
        self._chunks: deque[OutputChunk] = deque()
        self._bytes = 0
        self._attempt = self._next = 0

    def take(self) -> list[OutputChunk]:
        found = list(self._chunks)
        self._chunks.clear()
        self._bytes = 0
        return found

    def receive(self, step: int, service: str, attempt: int, first: int, texts: list[str]) -> None:
        """Queue chunks. Those of an older attempt, those that come twice or too late, and those
        that do not fit are dropped."""
        if attempt < self._attempt:
            return
        if attempt > self._attempt:
            self._attempt, self._next = attempt, 0
        for number, text in enumerate(texts, first):
            size = len(text) + CHUNK_COST_BYTES
            if number < self._next or not text or self._bytes + size > MAX_QUEUED_BYTES:
                continue
            dropped = number - self._next
            self._chunks.append(OutputChunk(step, service, attempt, number, dropped, text))
            self._bytes += size
            self._next = number + 1
        self._ready.set()


class OutputStream:
    """Sends the output of steps that this process runs, and receives output for its listeners."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._listeners: dict[str, list[OutputListener]] = {}

    @contextmanager
    def listening(self, job: str, ready: asyncio.Event) -> Iterator[OutputListener]:
        """Chunks of this job from now on. `ready` is set whenever there are new ones."""
        listener = OutputListener(ready)
        self._listeners.setdefault(job, []).append(listener)
        if len(self._listeners[job]) == 1:
            self._index.subscribe_output(job, lambda text: self._received(job, text))
        try:
            yield listener
        finally:
            self._listeners[job].remove(listener)
            if not self._listeners[job]:
                del self._listeners[job]
                self._index.unsubscribe_output(job)

    def send(self, lease: Lease, first: int, chunks: Sequence[Json]) -> None:
        """Hand out chunks, of which the first has this number. Never waits and never fails."""
        texts = [_text(chunk) for chunk in chunks]
        about = (lease.step, lease.service, lease.fence, first)
        self._hand_out(lease.job, *about, texts)
        self._index.publish_output(lease.job, orjson.dumps([*about, texts]).decode())

    async def flush(self) -> None:
        """Wait until the chunks so far are sent, or dropped."""
        await self._index.flush_output()

    def _received(self, job: str, text: str) -> None:
        step, service, attempt, first, texts = orjson.loads(text)
        self._hand_out(job, step, service, attempt, first, texts)

    def _hand_out(
        self, job: str, step: int, service: str, attempt: int, first: int, texts: list[str]
    ) -> None:
        for listener in self._listeners.get(job, ()):
            listener.receive(step, service, attempt, first, texts)


def _text(chunk: Json) -> str:
    """The chunk as JSON; empty if it is too long, or no JSON."""
    try:
        text = orjson.dumps(chunk)
    except TypeError:
        return ""
    return text.decode() if len(text) <= MAX_CHUNK_BYTES else ""
