"""Results on their way: sent together, again until somebody took them."""

from __future__ import annotations

import asyncio
import logging

from fairlane.errors import FairlaneError
from fairlane.pull.shapes import Result, Trouble
from fairlane.worker.line import Away, Line, Unknown

log = logging.getLogger("fairlane.worker")

AT_ONCE = 200
PAUSE = 0.5


class Reports:
    """What comes while a request is under way goes with the next."""

    def __init__(self, line: Line) -> None:
        self._line = line
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
            batch, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
            self._sending = len(batch)
            if not self._waiting:
                self._any.clear()
            await self._send(batch)
            self._sending = 0
            self._sent.set()

    async def flush(self) -> None:
        """Returns when nothing is on its way."""
        while self._waiting or self._sending:
            self._sent.clear()
            await self._sent.wait()

    async def _send(self, batch: list[Result]) -> None:
        while True:
            try:
                verdicts = await self._line.report(batch)
            except Away as error:
                log.warning("results are not taken, trying again: %s", error)
                await asyncio.sleep(PAUSE)
                continue
            except Unknown:
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
            elif verdict.code and result.status != "released":  # else it was gone already
                log.warning("%s: %s", verdict.task, verdict.detail or verdict.code)
