"""Sends the streamed output of a worker in batches. Chunks that cannot be sent are dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from fairlane.engine.output_stream import MAX_CHUNK_BYTES
from fairlane.errors import FairlaneError
from fairlane.json_text import json_bytes
from fairlane.worker.transport import Transport
from fairlane.worker_protocol.messages import MAX_OUTPUT_CHUNKS, Ref

log = logging.getLogger("fairlane.worker")

BATCH_SECONDS = 0.05
"""Seconds between two requests with output."""

MAX_PENDING_BYTES = 1 << 19
"""Bytes of one task's chunks that wait to be sent. A request stays below the server's limit."""


class PendingOutput:
    """The unsent chunks of one task. `first` is the number of the first one."""

    def __init__(self, ref: Ref) -> None:
        self.ref = ref
        self.first = self.next = self.bytes = 0
        self.chunks: list[Any] = []


class OutputSender:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._pending: dict[str, PendingOutput] = {}
        self._any = asyncio.Event()
        self._lock = asyncio.Lock()

    def begin(self, ref: Ref) -> None:
        """Takes chunks of this task until `finish` or `drop`."""
        self._pending[ref.lease] = PendingOutput(ref)

    def add(self, ref: Ref, chunk: Any) -> None:
        """Takes a chunk. One that does not fit is dropped; its number is not used again, so that
        listeners learn of the gap. A chunk of a task that has ended is dropped."""
        pending = self._pending.get(ref.lease)
        if pending is None:
            return
        number, pending.next = pending.next, pending.next + 1
        try:
            size = len(json_bytes("output", chunk))
        except FairlaneError as error:
            log.warning("output of %s not sent: %s", ref.task, error)
            return
        full = (
            size > MAX_CHUNK_BYTES
            or pending.bytes + size > MAX_PENDING_BYTES
            or len(pending.chunks) >= MAX_OUTPUT_CHUNKS
            or (pending.chunks and number != pending.first + len(pending.chunks))
        )
        if full:
            return
        if not pending.chunks:
            pending.first = number
        pending.chunks.append(chunk)
        pending.bytes += size
        self._any.set()

    async def run(self) -> None:
        while True:
            await self._any.wait()
            self._any.clear()
            for lease in list(self._pending):
                await self._send(lease)
            await asyncio.sleep(BATCH_SECONDS)

    async def finish(self, refs: Iterable[Ref]) -> None:
        """Sends what is left of these tasks, which have ended."""
        for ref in refs:
            if ref.lease in self._pending:
                await self._send(ref.lease)
                self._pending.pop(ref.lease, None)

    def drop(self, ref: Ref) -> None:
        """Forgets what is left of a task whose result is not wanted."""
        self._pending.pop(ref.lease, None)

    @property
    def tasks(self) -> int:
        """Tasks whose chunks are taken."""
        return len(self._pending)

    async def _send(self, lease: str) -> None:
        async with self._lock:
            pending = self._pending.get(lease)
            if pending is None or not pending.chunks:
                return
            chunks, pending.chunks, pending.bytes = pending.chunks, [], 0
            try:
                await self._transport.output(pending.ref, pending.first, chunks)
            except FairlaneError as error:
                log.warning("output of %s not sent: %s", pending.ref.task, error)
