"""Flows (per-user queues), fair-share accounts, and the lazily updated heaps that order flows. A
heap entry with an outdated measure is corrected or removed when it reaches the top."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairlane.index.memory.flow_queue import NO_ENTRY, FlowQueue
from fairlane.model.queue_entry import Entry
from fairlane.policy.aging import Starts, ages_from

if TYPE_CHECKING:
    from fairlane.index.memory.service_queue import LaneQueue


NEVER = Starts()


class Account:
    """The fair-share counter and the ageing clock of one user in one service and tier."""

    __slots__ = ("counter", "refund", "running", "starts", "waiting")

    def __init__(self) -> None:
        self.counter = 0
        self.refund = 0
        self.starts = NEVER
        self.waiting = 0
        self.running = 0

    def copy(self) -> Account:
        other = Account()
        other.counter, other.refund, other.starts = self.counter, self.refund, self.starts
        other.waiting, other.running = self.waiting, self.running
        return other


class Flow:
    """The queue of one user inside (lane, band, model). A flow without an account is shared by all
    users, oldest job first. `parked` is True while the user is at their running limit."""

    __slots__ = ("account", "cap", "line", "model", "name", "parked", "queue", "user")

    def __init__(
        self, name: str, queue: LaneQueue, entry: Entry, model: str, account: Account | None
    ) -> None:
        self.name, self.queue, self.model, self.account = name, queue, model, account
        self.user, self.cap = entry.user, entry.cap
        self.line = FlowQueue()
        self.parked = False

    def __lt__(self, other: Flow) -> bool:
        return self.name < other.name

    @property
    def turn(self) -> str:
        """Flows with the same turn are moved by each other's starts: those of one user."""
        return self.name if self.account is None else self.user

    def order(self) -> int:
        """The sort key among the flows of a tier: the user's counter, or without an account the
        score of the first job."""
        account = self.account
        return self.line.head.score if account is None else account.counter

    def since(self) -> int:
        """The time from which the first job ages."""
        head, account = self.line.head, self.account
        return head.score if account is None else ages_from(head.score, head.id, account.starts)


Measure = tuple[int, int]


class Ranking:
    """A heap of flows by a measure that can change while they are in it. Every flow with a waiting
    job has an entry whose measure is at most the present one. Stale entries are removed when they
    are more than half of the heap."""

    __slots__ = ("_flows", "_heap", "_measure", "_model")

    def __init__(
        self,
        measure: Callable[[Flow], Measure],
        flows: dict[str, Flow],
        model: str | None = None,
    ) -> None:
        self._heap: list[tuple[Measure, str, Flow]] = []
        self._measure, self._flows, self._model = measure, flows, model

    def push(self, flow: Flow) -> None:
        heapq.heappush(self._heap, (self._measure(flow), flow.name, flow))
        if len(self._heap) > 2 * len(self._flows) + 64:
            self._remove_stale()

    def head(self) -> Flow | None:
        heap = self._heap
        while heap:
            noted, name, flow = heap[0]
            if flow.parked or flow.line.head is NO_ENTRY:
                heapq.heappop(heap)
                continue
            present = self._measure(flow)
            if present == noted:
                return flow
            if present > noted:
                heapq.heapreplace(heap, (present, name, flow))
            else:
                heapq.heappop(heap)
        return None

    def floor(self) -> int:
        """A lower bound for the first number of every flow's measure. Requires a flow."""
        return self._heap[0][0][0]

    def first(self, n: int, is_blocked: Callable[[Flow], bool]) -> list[Flow]:
        """The flows up to the n-th user that is not blocked. A started job changes the place of all
        flows of its user, so n flows are not enough. The ranking is not changed."""
        found: dict[str, Flow] = {}
        counted = set[str]()
        while len(counted) < n and (flow := self.head()) is not None:
            heapq.heappop(self._heap)
            if not is_blocked(flow):
                counted.add(flow.turn)
            found[flow.name] = flow
        for flow in found.values():
            self.push(flow)
        return [*found.values()]

    def _remove_stale(self) -> None:
        active = [
            flow
            for flow in self._flows.values()
            if flow.line.head is not NO_ENTRY and not flow.parked
        ]
        self._heap = [
            (self._measure(flow), flow.name, flow)
            for flow in active
            if self._model in (None, flow.model)
        ]
        heapq.heapify(self._heap)


def by_order(flows: dict[str, Flow], model: str | None = None) -> Ranking:
    """A ranking in fair order. Of two flows of one user, the one with the older first job leads."""
    return Ranking(_order, flows, model)


def by_age(flows: dict[str, Flow]) -> Ranking:
    return Ranking(_age, flows)


def _order(flow: Flow) -> Measure:
    score = flow.line.head.score
    return (score, score) if flow.account is None else (flow.account.counter, score)


def _age(flow: Flow) -> Measure:
    return flow.since(), flow.line.head.score
