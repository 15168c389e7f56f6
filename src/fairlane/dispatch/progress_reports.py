"""Progress of running calls, reported to the engine at most once a second for each call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fairlane.dispatch.call import Call
from fairlane.engine import Engine
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

PROGRESS_PERIOD_MICROSECONDS = SECOND


class ProgressReports:
    """The last progress of each call wins. A report that cannot be stored is dropped: progress
    never ends a call."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calls: set[Call] = set()

    @contextmanager
    def following(self, call: Call) -> Iterator[None]:
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)

    async def run(self) -> None:
        """Reports what is new once a second, for ever."""
        while True:
            await self._engine.clock.sleep(PROGRESS_PERIOD_MICROSECONDS)
            news = [call for call in self._calls if call.told is not None]
            await asyncio.gather(*(self._report(call) for call in news))

    async def _report(self, call: Call) -> None:
        told, call.told = call.told, None
        try:
            if told is not None:
                await self._engine.progress(call.lease, told.percent, told.text)
        except Exception as error:  # noqa: BLE001 - a lost report must not end the call
            log.debug("progress of %s not reported: %r", call.lease.job, error)
