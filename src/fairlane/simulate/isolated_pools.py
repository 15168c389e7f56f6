"""A baseline: isolated worker pools per priority, a promotion sweep, and workers that hold a job
while they poll for a slot."""

from __future__ import annotations

from collections import deque

from fairlane.model.catalog import Catalog
from fairlane.simulate.order import SimulatedStep
from fairlane.simulate.places import SimulatedSlot
from fairlane.simulate.queue_disciplines import Baseline
from fairlane.units import SECOND

POOLS = (5, 5, 3)
SWEEP_MICROSECONDS = 300 * SECOND
PROMOTE = {2: (1800 * SECOND, 100), 1: (3600 * SECOND, 50)}
"""For each pool: the wait before promotion, and the most jobs promoted in one sweep."""

POLL_MICROSECONDS = SECOND


class Isolated(Baseline):
    def __init__(self, name: str, catalog: Catalog, serving: list[SimulatedSlot]) -> None:
        super().__init__(name, catalog, serving)
        total = len(serving)
        low = max(1, total * POOLS[2] // sum(POOLS))
        medium = max(1, total * POOLS[1] // sum(POOLS))
        self._free = [max(1, total - medium - low), medium, low]
        self._lines: list[deque[SimulatedStep]] = [deque(), deque(), deque()]
        self._came: dict[str, int] = {}
        self._polling: dict[str, tuple[SimulatedStep, int]] = {}
        self._worker: dict[str, int] = {}
        self._next_sweep = SWEEP_MICROSECONDS

    def add(self, step: SimulatedStep, now: int) -> None:
        self._came.setdefault(step.id, now)
        self._lines[step.rank * 3 // len(self.catalog.tiers)].append(step)
        self._sweep(now)
        self._pick_up(now)

    def choose(self, place: SimulatedSlot, now: int) -> SimulatedStep | int | None:
        self._sweep(now)
        self._pick_up(now)
        again = None
        for step, since in list(self._polling.values()):
            if step.gone:
                self._let_go(step)
            elif step.service in (place.worker.services or ()):
                next_poll = since + -(-(now - since) // POLL_MICROSECONDS) * POLL_MICROSECONDS
                if next_poll > now:
                    again = next_poll if again is None else min(again, next_poll)
                elif self.has_room(step.service, place, now):
                    del self._polling[step.id]
                    return step
        return again if again is not None else self._next_sweep

    def ended(self, step: SimulatedStep, now: int) -> None:
        self._free[self._worker.pop(step.id)] += 1
        super().ended(step, now)
        self._pick_up(now)

    def _pick_up(self, now: int) -> None:
        """Every free worker takes the first job of its own pool, whatever the job needs."""
        for pool, line in enumerate(self._lines):
            while self._free[pool] and line:
                step = line.popleft()
                if not step.gone:
                    self._free[pool] -= 1
                    self._worker[step.id] = pool
                    self._polling[step.id] = (step, now)
                    self.wake_for(step)

    def _let_go(self, step: SimulatedStep) -> None:
        del self._polling[step.id]
        self._free[self._worker.pop(step.id)] += 1

    def _sweep(self, now: int) -> None:
        while self._next_sweep <= now:
            for pool, (after, most) in PROMOTE.items():
                line = self._lines[pool]
                old = [each for each in line if self._next_sweep - self._came[each.id] >= after]
                for step in old[:most]:
                    line.remove(step)
                    self._lines[pool - 1].append(step)
            self._next_sweep += SWEEP_MICROSECONDS
