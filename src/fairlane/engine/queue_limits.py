"""Queue limits (backpressure): how many jobs and lanes wait for a service, and when a full queue
drains; `policy/queue_limits.py` refuses. A submit waits at most 50 ms for the index. Without an
answer the last known depths count, plus the jobs that this process has added since."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from fairlane.engine.core import Core, ShownQueue
from fairlane.engine.submit_terms import Terms
from fairlane.errors import InvalidInput, Refused
from fairlane.model.step import Plan
from fairlane.policy.queue_limits import admit_waiting
from fairlane.units import HOUR

MAX_LANES_PER_SERVICE = 64
MAX_DRAIN_MICROSECONDS = HOUR
MAX_SHOWN_QUEUES = 10_000
"""Services whose last known depths are cached."""

T = TypeVar("T")


class QueueLimits:
    """The queues of services as read from the index, and the jobs that this submit adds to them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[str, dict[str, int]] = {}
        self._joined: Counter[str] = Counter()
        self._is_away = False
        self.coming: Counter[str] = Counter()

    async def check(self, *plans: Plan) -> None:
        """Raises InvalidInput if a service would have more than 64 lanes with waiting jobs,
        including those of this submit. The bound exists because every claim compares all lanes.
        These plans are accepted together, or none is."""
        new: dict[str, set[str]] = {}
        for step in itertools.chain.from_iterable(plans):
            live = self._waiting.get(step.service)
            if live is None:
                live = self._waiting[step.service] = await self._lanes(step.service)
            if step.lane not in live:
                more = new.setdefault(step.service, set())
                more.add(step.lane)
                if len(live) + len(more) > MAX_LANES_PER_SERVICE:
                    raise InvalidInput(
                        f"{step.service} has jobs with {MAX_LANES_PER_SERVICE} different needs "
                        "waiting, and this one's are new; use fewer combinations of regions and "
                        "capabilities"
                    )
        for service, more in new.items():
            self._waiting[service].update(dict.fromkeys(more, 0))

    async def count(self, services: Iterable[str]) -> None:
        """Read the present depths of these services."""
        for service in services:
            self._waiting[service] = await self._lanes(service)

    def refusal(self, on: Terms, jobs: int, now: int) -> Refused | None:
        """The refusal if this many more jobs may not wait for their first service, else None: then
        the jobs count from now on. Jobs that other processes are writing do not count yet, so the
        limit can be exceeded by their number."""
        core, name = self._core, on.plan[0].service
        waiting = sum(self._waiting[name].values()) + self._joined[name]
        waiting += core.coming[name] + self.coming[name]
        refused = admit_waiting(name, on.room, waiting, jobs)
        if refused is not None:
            refused.frees_at = drained_at(core, waiting, now, [name])
        else:
            self.coming[name] += jobs
        return refused

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T | None:
        """The answer of the index, or None. After one timeout (50 ms) this submit does not ask
        again."""
        if self._is_away:
            return None
        answer = await self._core.ask_index(question())
        self._is_away = answer is None
        return answer

    async def _lanes(self, service: str) -> dict[str, int]:
        """The depths by lane as the index shows them now, or as it last did: submits do not depend
        on the index."""
        known = self._core.queues_shown
        lanes = await self.ask(lambda: self._core.index.lanes(service))
        if lanes is not None:
            if len(known) >= MAX_SHOWN_QUEUES:
                known.clear()
            known[service] = ShownQueue(lanes)
        shown = known.get(service) or ShownQueue({})
        self._joined[service] = shown.joined
        return dict(shown.lanes)


def jobs_joined(core: Core, coming: Counter[str]) -> None:
    """Count these jobs as queued: they are no longer being written."""
    core.coming -= coming
    for service, jobs in coming.items():
        if service in core.queues_shown:
            core.queues_shown[service].joined += jobs


def drained_at(core: Core, waiting: int, now: int, services: Iterable[str]) -> int:
    """The time (µs) at which this many jobs would have started: the depth divided by the throughput
    of these services together, at most an hour."""
    workers = max(1, len(core.loaded))
    rate = sum(
        (core.service(name).limit or workers) / max(1, core.costs.get(name)) for name in services
    )
    return now + (
        min(MAX_DRAIN_MICROSECONDS, round(waiting / rate)) if rate else MAX_DRAIN_MICROSECONDS
    )
