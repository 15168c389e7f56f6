"""The output publisher over Redis pub/sub: sends chunks of streamed output to listeners in other
processes. What cannot be sent is dropped."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fairlane.errors import NotReady
from fairlane.index.redis.event_publisher import PUBLISH_PERIOD_SECONDS
from fairlane.index.redis.script_client import ScriptClient

MAX_PENDING_BYTES = 1 << 20
"""Bytes of messages that wait to be sent, in one process."""

SILENCE_SECONDS = 1.0
"""Seconds in which the output of a job without a listener is not sent."""

FLUSH_SECONDS = 0.2
MAX_SILENT_JOBS = 10_000


class OutputPublisher:
    """Messages are sent together, at most every 20 ms. The first one is sent at once."""

    def __init__(self, server: ScriptClient, process: str) -> None:
        self._server, self._process = server, process
        self._pending: list[tuple[str, str]] = []
        self._bytes = 0
        self._silent_until: dict[str, float] = {}
        self._sending: asyncio.Task[None] | None = None
        self._sent = asyncio.Event()

    def publish(self, job: str, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._silent_until.get(job, 0) > now or self._bytes + len(text) > MAX_PENDING_BYTES:
            return
        self._pending.append((job, text))
        self._bytes += len(text)
        self._sent.clear()
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def flush(self) -> None:
        """Wait until what is pending is sent, for a short time."""
        if self._bytes:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._sent.wait()

    async def close(self) -> None:
        await self.flush()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while self._pending:
                sent, self._pending = self._pending, []
                heard = await self._publish(sent)
                self._bytes -= sum(len(text) for _, text in sent)
                if not self._bytes:
                    self._sent.set()
                self._note_silence(sent, heard)
                await asyncio.sleep(PUBLISH_PERIOD_SECONDS)
        finally:
            self._sending = None

    async def _publish(self, sent: list[tuple[str, str]]) -> list[int]:
        """How many processes heard each message."""
        with suppress(NotReady):
            words = [word for pair in sent for word in pair]
            heard: list[int] = await self._server.run("output", self._process, *words)
            return heard
        return [0] * len(sent)

    def _note_silence(self, sent: list[tuple[str, str]], heard: list[int]) -> None:
        if len(self._silent_until) > MAX_SILENT_JOBS:
            self._silent_until.clear()
        now = asyncio.get_running_loop().time()
        for (job, _), number in zip(sent, heard, strict=True):
            if number:
                self._silent_until.pop(job, None)
            else:
                self._silent_until[job] = now + SILENCE_SECONDS
