"""The sampler of the dashboard: reads the whole system every second while there are viewers,
otherwise every five seconds, and publishes one frame for each audience. There is one per
process."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from fairlane.background import end
from fairlane.dashboard.audience import Audience
from fairlane.dashboard.broadcast import Broadcast
from fairlane.dashboard.detail import service_detail
from fairlane.dashboard.frame import Surroundings, build
from fairlane.dashboard.history import RecentHistory
from fairlane.dashboard.reading import SlowReading, SystemReading, read
from fairlane.engine import Engine
from fairlane.errors import NotReady, is_store_error
from fairlane.units import SECOND

log = logging.getLogger("fairlane.dashboard")

IDLE_SECONDS = 5.0
WATCHED_SECONDS = 1.0
KEPT_SECONDS = 60.0
"""An audience without viewers gets frames for so long: one that connects again misses nothing."""

MAX_SPAN_MICROSECONDS = 10 * SECOND
"""The longest time that one sample stands for: after a pause, less is known."""

Surround = Callable[[], Awaitable[Surroundings]]


async def no_surroundings() -> Surroundings:
    return Surroundings()


class Sampler:
    def __init__(self, engine: Engine, surround: Surround = no_surroundings) -> None:
        self._engine, self._surround = engine, surround
        self._history, self._slow = RecentHistory(), SlowReading()
        self._broadcasts: dict[Audience, Broadcast] = {}
        self._topics: Counter[tuple[Audience, str]] = Counter()
        self._details: dict[tuple[Audience, str], str] = {}
        self._reading: SystemReading | None = None
        self._around = Surroundings()
        self._number = secrets.randbelow(1 << 28) << 20  # frames of two processes never mix
        self._sampled_at = 0
        self._read_at = float("-inf")
        self._sampling = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        await end(self._task)
        self.wake()

    def wake(self) -> None:
        """Wake all viewers that wait for a frame."""
        for broadcast in self._broadcasts.values():
            broadcast.wake()

    # --- viewers -----------------------------------------------------------------------------
    async def join(self, audience: Audience) -> Broadcast:
        """Add a viewer. When it returns, there is a frame."""
        broadcast = self._broadcasts.setdefault(audience, Broadcast())
        broadcast.viewers += 1
        try:
            if not broadcast.number:
                await self._publish_first(audience, broadcast)
        except BaseException:
            self.leave(audience)
            raise
        self._wanted.set()
        return broadcast

    async def _publish_first(self, audience: Audience, broadcast: Broadcast) -> None:
        """Publish a frame that is at most a second old. Viewers that come at once share it."""
        async with self._sampling:
            if _loop_time() - self._read_at > WATCHED_SECONDS:
                await self._sample()
        if not broadcast.number:
            self._publish(audience, broadcast)

    def leave(self, audience: Audience) -> None:
        broadcast = self._broadcasts[audience]
        broadcast.viewers -= 1
        broadcast.left_at = _loop_time()

    def watch(self, audience: Audience, service: str) -> None:
        """Compute the detail of this service from now on."""
        self._topics[audience, service] += 1
        self._wanted.set()

    def unwatch(self, audience: Audience, service: str) -> None:
        self._topics[audience, service] -= 1
        if self._topics[audience, service] <= 0:
            del self._topics[audience, service]
            self._details.pop((audience, service), None)

    def detail(self, audience: Audience, service: str) -> str | None:
        """The message with the detail of this service; None until the next sample."""
        return self._details.get((audience, service))

    # --- sampling ----------------------------------------------------------------------------
    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._try_sample()
            self._wanted.clear()
            if not self._is_watched():
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, began + IDLE_SECONDS - loop.time())):
                        await self._wanted.wait()
            await asyncio.sleep(max(0.05, began + WATCHED_SECONDS - loop.time()))

    async def _try_sample(self) -> None:
        try:
            await self.sample()
        except NotReady as error:
            log.warning("no frame: %s", error)
        except Exception as error:
            if is_store_error(error):
                log.warning("no frame: %r", error)
            else:
                log.exception("no frame, trying again")

    def _is_watched(self) -> bool:
        """Whether there are viewers. Audiences that had none for a while are forgotten."""
        now = _loop_time()
        for audience, each in list(self._broadcasts.items()):
            if not each.viewers and now - each.left_at > KEPT_SECONDS:
                del self._broadcasts[audience]
        return any(each.viewers for each in self._broadcasts.values())

    async def sample(self) -> None:
        """Read the system once and publish a frame for each audience."""
        async with self._sampling:
            await self._sample()

    async def _sample(self) -> None:
        detailed = frozenset(service for _, service in self._topics)
        self._around = await self._surround()
        reading = replace(
            await read(self._engine, self._slow, detailed),
            speed=self._around.simulated_speed or 1,
        )
        found = await self._engine.monitor.activity(self._history.next_period)
        self._history.add(found, reading.at)
        self._note_slots(reading)
        self._reading, self._read_at = reading, _loop_time()
        self._number += 1
        for audience, broadcast in list(self._broadcasts.items()):
            self._publish(audience, broadcast)
        self._make_details(reading)
        self.wake()

    def _note_slots(self, reading: SystemReading) -> None:
        span = min(MAX_SPAN_MICROSECONDS, reading.at - self._sampled_at)
        self._sampled_at = reading.at
        for service, held in reading.slots.items():
            self._history.note_slots(service, held, reading.at)
            running = [(each.entry.rank, each.entry.user) for each in held if each.entry]
            if running:
                front = reading.fronts.get(service)
                wanting = _wanting(running, front.users if front is not None else {})
                self._history.note_shares(service, running, wanting, span, reading.at)

    def _publish(self, audience: Audience, broadcast: Broadcast) -> None:
        if self._reading is None:
            return
        types = self._engine.task_types(audience.tenant) if audience.tenant is not None else ()
        frame = build(self._reading, self._history, audience, types, self._around)
        broadcast.publish(self._number, frame)

    def _make_details(self, reading: SystemReading) -> None:
        known = {each.name: each for each in reading.services}
        for audience, name in self._topics:
            service = known.get(name)
            if service is None or not self._may_see(audience, name):
                continue
            data = service_detail(service, reading, self._history, audience)
            message: dict[str, Any] = {"topic": f"service:{name}", "data": data}
            self._details[audience, name] = orjson.dumps(message).decode()

    def _may_see(self, audience: Audience, service: str) -> bool:
        if audience.tenant is None or service in self._engine.catalog.services:
            return True
        return service in self._engine.task_types(audience.tenant)


def _wanting(running: Sequence[tuple[int, str]], flows: Mapping[int, int]) -> dict[int, int]:
    """How many users of each rank want the service: those that wait, or those that run."""
    users = {rank: {user for its, user in running if its == rank} for rank, _ in running}
    return {rank: max(len(its), flows.get(rank, 0)) for rank, its in users.items()}


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
