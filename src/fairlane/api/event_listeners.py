"""The event stream for WebSocket and server-sent events: stored events, then live events, without a
gap. Positions and progress are sent at most once a second. `engine/follow.py` holds the loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from fairlane.background import end
from fairlane.engine import Engine
from fairlane.model.event import Event
from fairlane.model.job import Job, Progress
from fairlane.model.state import State
from fairlane.policy.eta_calibration import Eta

log = logging.getLogger("fairlane.api")

POSITION_PERIOD_SECONDS = 1.0
MAX_POSITIONS_PER_PERIOD = 500
"""Jobs whose position is computed in one period."""


class LastStanding(NamedTuple):
    """The position and the ETA of a queued job."""

    position: int | None
    eta: Eta | None


class ListenerPause(NamedTuple):
    """A periodic keep-alive. The route checks that the client is connected and its key is valid."""


News = Event | LastStanding | Progress | ListenerPause


@dataclass(slots=True, eq=False)
class Topic:
    """One job with at least one listener in this process."""

    job: Job | None = None
    listeners: int = 0
    standing: LastStanding | None = None


class EventStream:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._topics: dict[str, Topic] = {}
        self._closing = False
        self._rounds = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self.end_streams()
        await end(self._task)

    def end_streams(self) -> None:
        """Ends every stream. Clients connect to another process and continue after their last
        event."""
        self._closing = True
        self._engine.wake(self._topics)

    async def stream(
        self, job_id: str, after: int, keep_alive: float
    ) -> AsyncGenerator[News, None]:
        """Yields stored events after the sequence number `after`, then live events and updates,
        until the job has ended. Every `keep_alive` seconds it yields a ListenerPause."""
        standing: LastStanding | None = None
        progress: Progress | None = None
        pause_at = time.monotonic() + keep_alive
        changes = self._engine.changes(
            job_id, after, lambda wakeup: _wait_for_wakeup(wakeup, pause_at - time.monotonic())
        )
        with self._listening(job_id) as topic:
            async with aclosing(changes):
                async for job, events in changes:
                    if time.monotonic() >= pause_at:
                        pause_at = time.monotonic() + keep_alive
                        yield ListenerPause()
                    topic.job = job
                    for event in events:
                        yield event
                    if job is None or not job.live or self._closing:
                        return
                    if topic.standing is None or job.state is not State.QUEUED:
                        topic.standing = await self._standing(job)
                    if topic.standing is not None and topic.standing != standing:
                        standing = topic.standing
                        yield standing
                    if job.shown_progress is not None and job.shown_progress != progress:
                        progress = job.shown_progress
                        yield progress

    @contextmanager
    def _listening(self, job_id: str) -> Iterator[Topic]:
        topic = self._topics.setdefault(job_id, Topic())
        topic.listeners += 1
        try:
            yield topic
        finally:
            topic.listeners -= 1
            if not topic.listeners:
                self._topics.pop(job_id, None)

    # --- in the background -----------------------------------------------------------------------
    async def _run(self) -> None:
        while True:
            await asyncio.sleep(POSITION_PERIOD_SECONDS)
            try:
                await self._round()
            except Exception:
                log.exception("a round of news failed, trying again")

    async def _round(self) -> None:
        """Updates positions, which change without an event. The number per period is bounded: with
        more jobs, each is updated less often."""
        names = list(self._topics)
        if not names:
            return
        begin = self._rounds * MAX_POSITIONS_PER_PERIOD % len(names)
        self._rounds += 1
        for name in islice(names, begin, begin + MAX_POSITIONS_PER_PERIOD):
            topic = self._topics.get(name)
            if topic is None or topic.job is None:
                continue
            now = await self._standing(topic.job)
            if now is None or _differ(topic.standing, now):
                heard, topic.standing = topic.standing, now
                if now is not None or heard is not None:
                    self._engine.wake([name])

    async def _standing(self, job: Job) -> LastStanding | None:
        if job.state is not State.QUEUED:
            return None
        seen = await self._engine.standing(job)
        return None if seen is None else LastStanding(seen.position, seen.eta)


def _differ(before: LastStanding | None, now: LastStanding) -> bool:
    """Returns whether the position changed, or the ETA changed by more than a fifth."""
    if before is None or before.position != now.position:
        return True
    if before.eta is None or now.eta is None:
        return before.eta is not now.eta
    return abs(before.eta.p50 - now.eta.p50) * 5 > before.eta.p50


async def _wait_for_wakeup(wakeup: asyncio.Event, seconds: float) -> None:
    """Returns when `wakeup` is set, or after so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wakeup.wait()
