"""Sends results in batches, and repeats until the server has accepted them."""

from __future__ import annotations

import asyncio
import logging

from fairlane.errors import FairlaneError
from fairlane.worker.output_sender import OutputSender
from fairlane.worker.transport import RETRY_PAUSE_SECONDS, ServerAway, Transport, UnknownWorker
from fairlane.worker_protocol.messages import Result, Trouble

log = logging.getLogger("fairlane.worker")

RESULTS_PER_REQUEST = 200


class ResultSender:
    """Results that arrive during a request are sent with the next one."""

    def __init__(self, transport: Transport, outputs: OutputSender) -> None:
        self._transport, self._outputs = transport, outputs
        self._waiting: list[Result] = []
        self._any = asyncio.Event()
        self._sending = 0
        self._sent = asyncio.Event()

    def add(self, result: Result) -> None:
        self._waiting.append(result)
        self._any.set()

    async def run(self) -> None:
        while True:
            await self._any.wait()
            batch, self._waiting = (
                self._waiting[:RESULTS_PER_REQUEST],
                self._waiting[RESULTS_PER_REQUEST:],
            )
            self._sending = len(batch)
            if not self._waiting:
                self._any.clear()
            await self._send(batch)
            self._sending = 0
            self._sent.set()

    async def flush(self) -> None:
        """Returns when every result has been sent."""
        while self._waiting or self._sending:
            self._sent.clear()
            await self._sent.wait()

    async def _send(self, batch: list[Result]) -> None:
        await self._outputs.finish(result.ref for result in batch)
        while True:
            try:
                verdicts = await self._transport.report(batch)
            except ServerAway as error:
                log.warning("results are not taken, trying again: %s", error)
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
                continue
            except UnknownWorker:
                log.warning("%d results of a worker that is not known any more", len(batch))
                return
            except FairlaneError:
                log.exception("%d results cannot be sent", len(batch))
                return
            break
        for result, verdict in zip(batch, verdicts, strict=True):
            if verdict.code == "invalid_input" and result.status == "completed":
                message = f"its result cannot be stored: {verdict.detail}"
                trouble = Trouble(message, retriable=False, code="service_error")
                self.add(result._replace(status="failed", output=None, trouble=trouble))
            elif verdict.code and result.status != "released":  # else the lease was gone already
                log.warning("%s: %s", verdict.task, verdict.detail or verdict.code)
