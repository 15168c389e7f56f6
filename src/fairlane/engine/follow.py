"""Change feed of one job: the loop behind every listener (event iterator, server-sent events,
WebSocket, waits). It reads the ledger, yields what it finds, waits for a wakeup, and reads
again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple

from fairlane.engine.core import Core
from fairlane.model.event import Event
from fairlane.model.job import Job

Pause = Callable[[asyncio.Event], Awaitable[object]]
"""Waits until the event is set; may return earlier."""


class Change(NamedTuple):
    """A job as read from the ledger (None: deleted), and the events since the last change."""

    job: Job | None
    events: list[Event]


async def follow(
    core: Core, job_id: str, pause: Pause = asyncio.Event.wait
) -> AsyncGenerator[Job | None, None]:
    """Yields the job now, and again whenever it may have changed or `pause` has returned, until the
    job has ended. Yields None if the job does not exist."""
    with core.subscriptions.listening(job_id) as wakeup:
        while True:
            wakeup.clear()
            job = (await core.ledger.jobs([job_id])).get(job_id)
            if job is not None and job.fan_out:
                core.subscriptions.fan_outs.add(job_id)
            yield job
            if job is None or not job.live:
                return
            await pause(wakeup)


async def changes(
    core: Core, job_id: str, after: int = 0, pause: Pause = asyncio.Event.wait
) -> AsyncGenerator[Change, None]:
    """Like `follow`, with the events after this sequence number. The job is read before its events,
    so a job that has ended comes with all of its events."""
    async with aclosing(follow(core, job_id, pause)) as looks:
        async for job in looks:
            events = await core.ledger.events(job_id, after)
            after = events[-1].seq if events else after
            yield Change(job, events)


async def events(core: Core, job_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
    """Yields the events after this sequence number, then each new one, without a gap, until the job
    has ended."""
    async with aclosing(changes(core, job_id, after)) as found:
        async for change in found:
            for event in change.events:
                yield event
