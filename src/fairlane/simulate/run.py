"""The discrete-event simulator: a virtual clock over arrivals, slots and ends."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from fairlane.model.catalog import Catalog
from fairlane.model.step import Lane
from fairlane.policy.eta_calibration import Eta
from fairlane.simulate.admission import Admission
from fairlane.simulate.fairlane_order import FairlaneOrder
from fairlane.simulate.order import Nothing, Order, Plan, SimulatedStep
from fairlane.simulate.places import SimulatedSlot
from fairlane.simulate.workload import Arrival, Workload
from fairlane.units import SECOND

Telling = Callable[[int], None]
PROGRESS_EVERY_ARRIVALS = 500
"""Arrivals between two updates of the progress bar."""

MAX_ETAS = 20_000
"""The most jobs that get an ETA: every job, or every n-th of a large workload."""


class SimulatedJob(NamedTuple):
    """One step that ran. `begun` is when its own work began, after its model was loaded."""

    job: int
    service: str
    ready_at: int
    started: int
    begun: int
    ended: int


class Run:
    """The outcome of a workload. `told` holds the ETAs that were given at submit."""

    def __init__(self, given: Workload, serving: list[SimulatedSlot], order: str) -> None:
        self.workload, self.places, self.order = given, serving, order
        self.served: list[SimulatedJob] = []
        self.loads = self.load_time = self.gave_up = 0
        self.refused: Counter[str] = Counter()
        self.told: dict[int, tuple[Eta, int]] = {}


class Simulation:
    """One run, from the first arrival to the end of the last job."""

    def __init__(
        self, catalog: Catalog, given: Workload, order: Order, serving: list[SimulatedSlot]
    ) -> None:
        self._order, self._given = order, given
        self._plans = {each.name: _plan(catalog, each.name) for each in given.arrivals}
        self._slots = _slots(serving)
        self._admission = Admission(catalog)
        self._run = Run(given, serving, order.name)
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        self._ask_every = max(1, len(given.arrivals) // MAX_ETAS)

    def to_the_end(self, told: Telling | None = None) -> Run:
        for place in self._run.places:
            self._offer(place, 0)
        for index, arrival in enumerate(self._given.arrivals):
            while self._events and self._events[0][0] <= arrival.at:
                self._next()
            self._arrive(index, arrival)
            if told is not None and index % PROGRESS_EVERY_ARRIVALS == 0:
                told(index)
        while self._events:
            self._next()
        return self._run

    def _next(self) -> None:
        now, _, happen = heapq.heappop(self._events)
        happen(now)
        self._wake(now)

    def _at(self, when: int, happen: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, happen))

    # --- coming ------------------------------------------------------------------------------
    def _arrive(self, index: int, arrival: Arrival) -> None:
        first = self._plans[arrival.name][0][0]
        refused = self._admission.refusal(arrival.user, arrival.rank, first, arrival.at)
        if refused is not None:
            self._run.refused[refused] += 1
            return
        job = SimulatedStep(index, arrival, self._plans[arrival.name])
        self._line_up(job, arrival.at)
        if isinstance(self._order, FairlaneOrder) and index % self._ask_every == 0:
            eta = self._order.eta(job, arrival.at, self._slots[job.service])
            if eta is not None:
                self._run.told[index] = (eta, -1)
        self._wake(arrival.at)

    def _line_up(self, job: SimulatedStep, now: int) -> None:
        job.service, job.lane, max_wait = job.plan[job.number]
        job.ready_at = now
        self._admission.waiting[job.service] += 1
        self._order.put(job, now)
        if max_wait:
            number = job.number
            self._at(now + max_wait, lambda _: self._give_up(job, number))

    def _give_up(self, job: SimulatedStep, number: int) -> None:
        if job.number == number and not job.runs:
            self._order.take(job)
            self._admission.waiting[job.service] -= 1
            self._admission.over(job.user)
            self._run.gave_up += 1

    # --- running -----------------------------------------------------------------------------
    def _wake(self, now: int) -> None:
        for place in self._order.woken():
            self._offer(place, now)

    def _offer(self, place: SimulatedSlot, now: int) -> None:
        while not place.busy:
            found = self._order.claim(place, now)
            if isinstance(found, Nothing):
                if found.look_again_at is not None:
                    self._look_again(place, max(found.look_again_at, now + 1))
                return
            self._start(place, found, now)

    def _look_again(self, place: SimulatedSlot, when: int) -> None:
        """Schedules a check at this time at the latest. The earliest one counts."""
        if place.looks_at is None or when < place.looks_at:
            place.looks_at = when
            self._at(when, lambda at: self._look(place, at))

    def _look(self, place: SimulatedSlot, now: int) -> None:
        if place.looks_at == now:
            place.looks_at = None
            self._offer(place, now)

    def _start(self, place: SimulatedSlot, job: SimulatedStep, now: int) -> None:
        arrival, run = job.arrival, self._run
        load = 0
        if job.model and not place.boundless:
            if job.model != place.loaded.model:
                load = arrival.load or 0
                run.loads += 1
                run.load_time += load
            place.loaded = place.loaded.after(job.model, now)
        place.busy = not place.boundless
        self._admission.waiting[job.service] -= 1
        job.runs = True
        job.waited += now - job.ready_at
        begun = now + load
        ended = begun + arrival.seconds[job.number]
        run.served.append(SimulatedJob(job.index, job.service, job.ready_at, now, begun, ended))
        if job.index in run.told and job.number == 0:
            run.told[job.index] = (run.told[job.index][0], now - job.ready_at)
        self._at(ended, lambda at: self._end(job, place, load, at))

    def _end(self, job: SimulatedStep, place: SimulatedSlot, load: int, now: int) -> None:
        if load:
            self._order.loaded(job, load)
        self._order.ended(job, now)
        job.number += 1
        job.runs = False
        if job.number < len(job.plan):
            self._line_up(job, now)
        else:
            self._admission.over(job.user)
        place.busy = False
        self._offer(place, now)


def _plan(catalog: Catalog, name: str) -> Plan:
    """(service, lane, longest wait) of every step."""
    return [
        (
            service.name,
            Lane(service.name, (), tuple(sorted(service.capabilities))).name,
            round(service.max_wait * SECOND),
        )
        for service in catalog.steps(name)
    ]


def _slots(serving: list[SimulatedSlot]) -> Counter[str]:
    """How many places serve each service."""
    return Counter(service for place in serving for service in place.worker.services or ())
