"""The claim preview: who is next? It simulates the next claims on a copy of a service's queues. The
exact queue positions and the front of a queue come from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from fairlane.index.index import EXACT_POSITIONS, NextJob
from fairlane.index.memory.claim import ClaimRound, ServiceView
from fairlane.index.memory.concurrency_limits import SlotPool
from fairlane.index.memory.flows import Flow
from fairlane.index.memory.service_queue import LaneQueue, ServiceQueue
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Pool, is_service_pool, user_pool
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.order import Choice, between_services, choose
from fairlane.policy.shares import ShareKind, granted

if TYPE_CHECKING:
    from fairlane.index.memory.memory import MemoryIndex

ANY_WORKER = Worker("preview")


def place_of(index: MemoryIndex, service_queue: ServiceQueue, job: str, now: int) -> int | None:
    """The job's position if it is one of the first EXACT_POSITIONS, else None."""
    turns = front(index, service_queue, EXACT_POSITIONS, now)
    return next((n for n, each in enumerate(turns, 1) if each.entry.id == job), None)


def front(index: MemoryIndex, service_queue: ServiceQueue, n: int, now: int) -> Iterator[NextJob]:
    """The first n jobs, in the order in which they would start."""
    return islice(PreviewRound(index, service_queue, n, now).turns(), n)


def is_at_limit(index: MemoryIndex, flow: Flow) -> bool:
    """Whether the flow's user has as many jobs running as allowed."""
    return flow.cap > 0 and is_user_at_limit(index, flow.user, flow.cap)


def is_user_at_limit(index: MemoryIndex, user: str, cap: int) -> bool:
    pool = index.pools.get(user_pool(user))
    return pool is not None and len(pool.held) >= cap


class PreviewRound(ClaimRound):
    """Claims on a copy of the first n jobs of the first flows, by one worker that reaches all
    regions. It decides with the same code as a claim, and writes only to the copy."""

    def __init__(self, index: MemoryIndex, service_queue: ServiceQueue, n: int, now: int) -> None:
        self.index, self.worker, self.now = index, ANY_WORKER, now
        self.loaded = index.last_models.get(service_queue.service.name, Loaded())
        self._original, self._copy = service_queue, service_queue.preview(n, self._is_blocked)
        self._pools = SlotCopies(index)
        self._started = Counter[str]()
        self._put_off = [flow for flow in self._copy.flows.values() if flow.parked]
        self.views = self._views()

    def _is_blocked(self, flow: Flow) -> bool:
        return is_at_limit(self.index, flow)

    def turns(self) -> Iterator[NextJob]:
        """The jobs in the order in which they would start. Each job is treated as ended, with an
        answer, before the next is chosen. Jobs that cannot start now come last: first those that
        the service or their regions do not admit, then those of users at their running limit."""
        yield from self._turns(blocked=False, limits_count=True)
        self.views = self._views_of_all()
        yield from self._turns(blocked=True, limits_count=True)
        for flow in self._put_off:
            self._copy.unpark(flow)
        self.views = self._views_of_all()
        yield from self._turns(blocked=True, limits_count=False)

    def _turns(self, *, blocked: bool, limits_count: bool) -> Iterator[NextJob]:
        while (best := self._best()) is not None:
            view, choice = self._with_affinity(*best)
            flow = self._copy.flows[choice.candidate.flow]
            if limits_count and is_at_limit(self.index, flow):
                self._copy.park(flow)
                self._put_off.append(flow)
                self._changed(flow, flow.queue.rank)
            else:
                yield self._start(view, best[1], choice, flow, blocked=blocked)

    # --- regions -----------------------------------------------------------------------------
    def _views(self) -> list[ServiceView]:
        """The queues of each region that admits jobs now."""
        return self._views_in(
            lambda region: self.index.admits(self._copy.service.name, region, self.now)
        )

    def _views_of_all(self) -> list[ServiceView]:
        """The queues of each region, and those that no region of the service allows."""
        views = self._views_in(lambda _: True)
        seen = {queue.key for view in views for queue in view.queues}
        others = [queue for queue in self._copy.queues.values() if queue.key not in seen]
        return [*views, self._view(others, None, len(views))] if others else views

    def _views_in(self, admits: Callable[[str | None], bool]) -> list[ServiceView]:
        queues, regions = [*self._copy.queues.values()], self._copy.service.regions
        if not regions:
            here = [each for each in queues if any(map(admits, each.lane.regions or (None,)))]
            return [self._view(here, None, 0)] if here else []
        views: list[ServiceView] = []
        for region in regions:
            here = [queue for queue in queues if queue.lane.allows(region)]
            if here and admits(region):
                views.append(self._view(here, region, len(views)))
        return views

    def _view(self, queues: list[LaneQueue], region: str | None, number: int) -> ServiceView:
        pools = self._pools.of(self._copy.service.name, region)
        return ServiceView(self._copy, pools, queues, region, number)

    # --- choosing ----------------------------------------------------------------------------
    def _best(self) -> tuple[ServiceView, Choice] | None:
        """Like a claim, except that every slot counts as free and none is reserved."""
        found: list[tuple[tuple[int, int, str], ServiceView, Choice]] = []
        copy = self._copy
        for view in (
            sorted(self.views, key=self._region_load) if len(self.views) > 1 else self.views
        ):
            choice = choose(self._heads(view), copy.credits, copy.service.shares)
            if choice is not None:
                found.append((between_services(choice), view, choice))
        return min(found, key=lambda each: each[0])[1:] if found else None

    def _region_load(self, view: ServiceView) -> tuple[bool, float, int]:
        """A region without a free slot comes after the others."""
        return self._pools.is_full(view.pools), *view.load()

    # --- starting ----------------------------------------------------------------------------
    def _start(
        self, view: ServiceView, best: Choice, choice: Choice, flow: Flow, *, blocked: bool
    ) -> NextJob:
        copy, fresh = self._copy, choice.candidate.kind is ShareKind.FRESH
        in_flow = len(self._original.flows[flow.name].line) - self._started[flow.name]
        self._started[flow.name] += 1
        counted = best if fresh else choice
        copy.credits = granted(
            copy.credits, counted.candidate.kind, copy.service.shares, jumped=counted.jumped
        )
        entry = flow.line.pop()
        if entry.model:
            self._note_load(view, entry)
        copy.started(flow, entry, self.now, in_turn=fresh and choice is best)
        self._changed(flow, entry.rank)
        level, _, _, since, _, _, kind = choice.candidate
        told = self.index.waiting[entry.id]
        return NextJob(told, kind, level, since, choice is not best, in_flow, blocked)

    def _changed(self, flow: Flow, rank: int) -> None:
        for view in self.views:
            view.touched(flow.queue, rank)

    def _note_load(self, view: ServiceView, entry: Entry) -> None:
        """Note the model that a copied slot, or the worker, has from now on."""
        copy, pool = self._copy, view.model_pool
        n = pool.slot_for(entry.model) if pool is not None else 0
        before = pool.loaded(n) if pool is not None else self.loaded
        after = before.after(entry.model, self.now)
        if copy.keeps_models and entry.model != before.model:
            copy.loads.append((self.now, entry.model))
        if pool is None:
            self.loaded = after
        else:
            pool.models[n] = after


class SlotCopies:
    """Copies of the slots of a service, with their models. Taken slots stay taken, unless all are:
    then any of them may be the next to be free."""

    def __init__(self, index: MemoryIndex) -> None:
        self._index = index
        self._copies: dict[str, SlotPool] = {}
        self._full = set[str]()

    def of(self, service: str, region: str | None) -> list[SlotPool]:
        names = [each.name for each in self._index.catalog.pools(service, region)]
        found = [self._copy(name) for name in names if is_service_pool(name)]
        return [each for each in found if each is not None]

    def is_full(self, pools: list[SlotPool]) -> bool:
        return any(pool.name in self._full for pool in pools)

    def _copy(self, name: str) -> SlotPool | None:
        pool = self._index.pools.get(name)
        if pool is None or name in self._copies:
            return self._copies.get(name)
        copy = self._copies[name] = SlotPool(Pool(name, pool.limit, pool.window))
        copy.models = dict(pool.models)
        if pool.spare > 0:
            copy.held = dict(pool.held)
        else:
            self._full.add(name)
        return copy
