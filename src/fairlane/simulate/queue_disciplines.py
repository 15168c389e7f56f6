"""Queue disciplines that the baselines are made of: ranks, round robin, many queues, and generation
queues, each at its best."""

from __future__ import annotations

import heapq
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from fairlane.index.memory.concurrency_limits import Pools, SlotPool
from fairlane.model.catalog import Catalog
from fairlane.simulate.order import Nothing, SimulatedStep
from fairlane.simulate.places import SimulatedSlot

Key = tuple[Any, ...]
QUEUES = 20
"""The number of queues for least-loaded assignment."""


class Baseline(ABC):
    """Shared by all baselines: slots in every pool that a step needs, and idle places; a place with
    the right model is woken first."""

    def __init__(self, name: str, catalog: Catalog, serving: list[SimulatedSlot]) -> None:
        self.name, self.catalog, self.places = name, catalog, serving
        self.waiting = 0
        self._pools = Pools()
        self._pools.configure(catalog.all_pools(), catalog.services)
        self._idle: dict[str, SimulatedSlot] = {}
        self._woken: list[SimulatedSlot] = []

    def put(self, step: SimulatedStep, now: int) -> None:
        self.waiting += 1
        self.add(step, now)
        self.wake_for(step)

    def take(self, step: SimulatedStep) -> None:
        self.waiting -= 1
        step.gone = True

    def claim(self, place: SimulatedSlot, now: int) -> SimulatedStep | Nothing:
        found = self.choose(place, now) if self.waiting else None
        if isinstance(found, SimulatedStep):
            self.waiting -= 1
            self._pools.take(self._needed(found.service, place, now), found.id, now)
            self._idle.pop(place.id, None)
            return found
        self._idle.setdefault(place.id, place)
        return Nothing(found)

    def ended(self, step: SimulatedStep, now: int) -> None:  # noqa: ARG002
        self._pools.release(step.id)
        if self.waiting and self.catalog.providers:  # other steps may wait for the same slot
            for each in list(self._idle.values()):
                self._wake(each)

    def loaded(self, step: SimulatedStep, duration: int) -> None:  # noqa: B027 - so it is with all of them
        """A baseline does not learn load times."""

    def woken(self) -> Iterator[SimulatedSlot]:
        woken, self._woken = self._woken, []
        yield from woken

    @abstractmethod
    def add(self, step: SimulatedStep, now: int) -> None:
        """Puts the step into the queue."""

    @abstractmethod
    def choose(self, place: SimulatedSlot, now: int) -> SimulatedStep | int | None:
        """The next step for this place, removed from the queue; otherwise the time of the next
        check."""

    def has_room(self, service: str, place: SimulatedSlot, now: int) -> bool:
        return all(pool.spare > 0 for pool in self._needed(service, place, now))

    def _needed(self, service: str, place: SimulatedSlot, now: int) -> list[SlotPool]:
        found = [
            self._pools.get(pool.name) for pool in self.catalog.pools(service, place.worker.region)
        ]
        needed = [pool for pool in found if pool is not None]
        for pool in needed:
            pool.expire(now)
        return needed

    def wake_for(self, step: SimulatedStep) -> None:
        """Wakes an idle place with the right model, otherwise the one that is idle the longest."""
        longest = None
        for each in self._idle.values():
            if step.service in (each.worker.services or ()):
                if not step.model or each.loaded.model == step.model:
                    longest = each
                    break
                longest = longest or each
        if longest is not None:
            self._wake(longest)

    def _wake(self, place: SimulatedSlot) -> None:
        del self._idle[place.id]
        self._woken.append(place)


class Heap:
    """A heap of steps by key. Removed steps are skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[Key, str, SimulatedStep]] = []

    def add(self, key: Key, step: SimulatedStep) -> None:
        heapq.heappush(self._heap, (key, step.id, step))

    def head(self) -> tuple[Key, str, SimulatedStep] | None:
        while self._heap and self._heap[0][2].gone:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def pop(self) -> tuple[Key, str, SimulatedStep]:
        return heapq.heappop(self._heap)


class Ranked(Baseline):
    """Each step gets a key when it arrives. The lowest key goes first."""

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        serving: list[SimulatedSlot],
        key: Callable[[SimulatedStep], Key],
    ) -> None:
        super().__init__(name, catalog, serving)
        self.key = key
        self.lines: dict[Hashable, Heap] = {}

    def add(self, step: SimulatedStep, now: int) -> None:  # noqa: ARG002
        self.lines.setdefault(self.line_of(step), Heap()).add(self.key(step), step)

    def choose(self, place: SimulatedSlot, now: int) -> SimulatedStep | int | None:
        best = None
        for service in place.worker.services or ():
            line = self.lines.get(self.line_for(service, place))
            head = line.head() if line else None
            if (
                line
                and head
                and (best is None or head < best[0])
                and self.has_room(service, place, now)
            ):
                best = (head, line)
        return self.started(*best[1].pop()) if best else None

    def line_of(self, step: SimulatedStep) -> Hashable:
        return step.service

    def line_for(self, service: str, place: SimulatedSlot) -> Hashable:  # noqa: ARG002
        return service

    def started(self, key: Key, _: str, step: SimulatedStep) -> SimulatedStep:  # noqa: ARG002
        return step


class RoundRobin(Ranked):
    """Round robin: groups take turns by weight, inside each class."""

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        serving: list[SimulatedSlot],
        *,
        klass: Callable[[SimulatedStep], int],
        group: Callable[[SimulatedStep], Hashable],
        weight: Callable[[SimulatedStep], float],
    ) -> None:
        super().__init__(name, catalog, serving, self._tag)
        self._class, self._group, self._weight = klass, group, weight
        self._last: dict[Hashable, float] = {}
        self._time: dict[Hashable, float] = {}

    def _tag(self, step: SimulatedStep) -> Key:
        klass = self._class(step)
        group = (step.service, klass, self._group(step))
        now = self._time.get((step.service, klass), 0.0)
        tag = self._last[group] = max(now, self._last.get(group, 0.0)) + 1 / self._weight(step)
        return klass, tag

    def started(self, key: Key, _: str, step: SimulatedStep) -> SimulatedStep:
        klass, tag = key
        self._time[step.service, klass] = max(tag, self._time.get((step.service, klass), 0.0))
        return step


class ManyQueues(Ranked):
    """Least-loaded assignment: a job is bound to a queue when it arrives. Each place serves one
    queue."""

    def __init__(
        self, name: str, catalog: Catalog, serving: list[SimulatedSlot], *, by_hash: bool
    ) -> None:
        super().__init__(name, catalog, serving, lambda step: (step.ready_at,))
        self._by_hash = by_hash
        self._number: dict[tuple[str, str], int] = {}
        self._queues: dict[str, int] = {}
        self._load: dict[tuple[str, int], int] = {}
        self._bound: dict[str, tuple[str, int]] = {}
        for place in serving:
            for service in place.worker.services or ():
                number = self._queues.get(service, 0)
                self._number[service, place.id] = number % QUEUES
                self._queues[service] = number + 1

    def line_of(self, step: SimulatedStep) -> Hashable:
        queues = range(min(QUEUES, self._queues[step.service]))
        if self._by_hash:
            queue = zlib.crc32(step.user.encode()) % len(queues)
        else:
            queue = min(queues, key=lambda each: self._load.get((step.service, each), 0))
        bound = self._bound[step.id] = (step.service, queue)
        self._load[bound] = self._load.get(bound, 0) + 1
        return bound

    def line_for(self, service: str, place: SimulatedSlot) -> Hashable:
        return service, self._number[service, place.id]

    def put(self, step: SimulatedStep, now: int) -> None:
        self.waiting += 1
        self.add(step, now)
        bound = self._bound[step.id]
        for each in self._idle.values():
            if (bound[0], self._number.get((bound[0], each.id))) == bound:
                self._wake(each)
                return

    def ended(self, step: SimulatedStep, now: int) -> None:
        self._load[self._bound.pop(step.id)] -= 1
        super().ended(step, now)


class GenerationQueue(Baseline):
    """Generation queue: best tier first, oldest first. At most three jobs of the loaded model in a
    row before the queue is checked again. A job past its tier's time forces the switch."""

    def __init__(self, name: str, catalog: Catalog, serving: list[SimulatedSlot]) -> None:
        super().__init__(name, catalog, serving)
        self._lines: dict[str, dict[tuple[int, str], deque[SimulatedStep]]] = {}

    def add(self, step: SimulatedStep, now: int) -> None:  # noqa: ARG002
        lines = self._lines.setdefault(step.service, {})
        lines.setdefault((step.rank, step.model), deque()).append(step)

    def choose(self, place: SimulatedSlot, now: int) -> SimulatedStep | int | None:
        heads = [
            (lines, key, line[0])
            for service in place.worker.services or ()
            if self.has_room(service, place, now)
            for lines in (self._lines.get(service, {}),)
            for key, line in list(lines.items())
            if _without_gone(line)
        ]
        if not heads:
            return None
        patience = self.catalog.tiers.patience
        starving = [
            each
            for each in heads
            if patience[each[2].rank] and now - each[2].ready_at > patience[each[2].rank]
        ]
        warm = [each for each in heads if each[2].model == place.loaded.model]
        if starving:
            lines, key, step = min(starving, key=lambda each: (each[2].ready_at, each[2].id))
        else:
            stays = warm and place.loaded.streak < 3
            lines, key, step = min(
                warm if stays else heads,
                key=lambda each: (each[2].rank, each[2].ready_at, each[2].id),
            )
        lines[key].popleft()
        if not lines[key]:
            del lines[key]
        return step


def _without_gone(line: deque[SimulatedStep]) -> bool:
    while line and line[0].gone:
        line.popleft()
    return bool(line)
