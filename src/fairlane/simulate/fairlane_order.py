"""Fairlane's order of service: its policy and its memory index, without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import count
from typing import Any, TypeVar

from fairlane.clock import ManualClock
from fairlane.engine.eta import Forecasts, ServiceRate, Waiting, is_busy
from fairlane.index.index import LOOK_AGAIN_MICROSECONDS, Freed, ModelSample
from fairlane.index.memory import MemoryIndex
from fairlane.index.memory.wakeups import serves
from fairlane.model.catalog import Catalog
from fairlane.model.construct import maker
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.policy.estimate import FIRST_COST_MICROSECONDS, Average
from fairlane.policy.eta_calibration import Eta
from fairlane.simulate.order import Nothing, SimulatedStep
from fairlane.simulate.places import SimulatedSlot

EPOCH = "simulated"
T = TypeVar("T")
new_entry = maker(Entry)


def at_once(answer: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine of the memory index, which never waits."""
    try:
        answer.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise RuntimeError("the index waited")


class FairlaneOrder:
    """Calls the index as the engine does. Costs are learnt from the durations of jobs, load times
    from the reports of workers."""

    def __init__(self, catalog: Catalog, index: type[MemoryIndex] = MemoryIndex) -> None:
        self.name = "fairlane"
        numbers = count(1)
        self.index = index(catalog, ManualClock(0), lambda: f"{next(numbers):x}")
        at_once(self.index.begin(EPOCH))
        at_once(self.index.open(EPOCH, 0))
        self.catalog = catalog
        self.costs = Average(FIRST_COST_MICROSECONDS)
        self.forecasts = Forecasts()
        self._steps: dict[str, SimulatedStep] = {}
        self._running: dict[str, tuple[str, int]] = {}
        self._asleep: dict[str, tuple[SimulatedSlot, asyncio.Event]] = {}

    def put(self, step: SimulatedStep, now: int) -> None:
        rank = step.rank
        cap = self.catalog.tiers.all[rank].max_running_per_user
        self._steps[step.id] = step
        entry = new_entry(
            (
                step.id,
                step.number + 1,
                step.lane,
                Band.TIER,
                rank,
                step.score,
                step.ready_at,
                step.user,
                step.model,
                self.costs.get(step.service, step.model),
                cap,
                rank,
            )
        )
        at_once(self.index.put((entry,), now))

    def take(self, step: SimulatedStep) -> None:
        at_once(self.index.take([(step.id, step.number + 1)]))
        self.forecasts.forget(step.id)

    def claim(self, place: SimulatedSlot, now: int) -> SimulatedStep | Nothing:
        picks = at_once(self.index.claim(place.worker, place.loaded, 1, now, EPOCH))
        if picks.proposals:
            token, entry, *_ = picks.proposals[0]
            self._asleep.pop(place.id, None)
            self._running[entry.id] = (token, now)
            step = self._steps.pop(entry.id)
            self.forecasts.started(step.id, step.service, step.model, now)
            return step
        wakeup = self.index.idle.wakeup(place.id)
        if wakeup is not None:
            self._asleep.pop(place.id, None)
            self._asleep[place.id] = (place, wakeup)
        soon = picks.look_again_at < now + LOOK_AGAIN_MICROSECONDS
        return Nothing(picks.look_again_at if soon or self._waits_for(place) else None)

    def _waits_for(self, place: SimulatedSlot) -> bool:
        """Whether a job waits that this place could run if its pools had room. If none does, an
        arrival wakes the place."""
        queues = (
            each
            for service_queue in self.index.service_queues.values()
            for each in service_queue.queues.values()
        )
        return any(serves(self.index, place.worker, each) for each in queues)

    def ended(self, step: SimulatedStep, now: int) -> None:
        token, started = self._running.pop(step.id)
        self.costs.learn(now - started, step.service, step.model)
        at_once(self.index.free((Freed(token, now - started),), now))

    def loaded(self, step: SimulatedStep, duration: int) -> None:
        at_once(self.index.learn_times([ModelSample(step.service, step.model, duration)]))

    def eta(self, step: SimulatedStep, now: int, slots: int) -> Eta | None:
        """The ETA that the owner of a waiting job gets."""
        standing = self.index.estimated(step.id, now)
        if standing is None:
            return None
        tier = self.catalog.tiers.names[step.rank]
        waiting = Waiting(step.id, step.service, tier, step.model, step.ready_at)
        limited = self.catalog.service(step.service).limit > 0
        serving = ServiceRate(
            slots=max(1, slots),
            cost=self.costs.get(step.service),
            free=not is_busy(standing) if limited else len(self._asleep) > 0,
        )
        return self.forecasts.eta(waiting, standing, serving, now)

    def woken(self) -> Iterator[SimulatedSlot]:
        rung = len(self._asleep) - len(self.index.idle)
        if rung <= 0:
            return
        found = []
        for place, wakeup in self._asleep.values():
            if wakeup.is_set():
                found.append(place)
                if len(found) == rung:
                    break
        for place in found:
            del self._asleep[place.id]
        yield from found
