"""Flows, accounts and the heaps that order them. Heaps are refreshed lazily: an entry that has
fallen behind is moved when it comes to the top, one that was overtaken is thrown away."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairlane.index.memory.line import Line
from fairlane.model.entry import Entry
from fairlane.policy.aging import Starts, ages_from

if TYPE_CHECKING:
    from fairlane.index.memory.desk import Queue


class Account:
    """One user in one service and tier: the fair-share counter and the ageing clock."""

    __slots__ = ("counter", "refund", "running", "starts", "waiting")

    def __init__(self) -> None:
        self.counter = 0
        self.refund = 0
        self.starts = Starts()
        self.waiting = 0
        self.running = 0


class Flow:
    """One user's line inside (lane, band, model). Without an account it is everybody's, oldest
    first. `parked` while its user has as many jobs running as allowed."""

    __slots__ = ("account", "cap", "line", "model", "name", "parked", "queue", "user")

    def __init__(
        self, name: str, queue: Queue, entry: Entry, model: str, account: Account | None
    ) -> None:
        self.name, self.queue, self.model, self.account = name, queue, model, account
        self.user, self.cap = entry.user, entry.cap
        self.line = Line()
        self.parked = False

    def __lt__(self, other: Flow) -> bool:
        return self.name < other.name

    def order(self) -> int:
        """Its place among the flows of a tier: its user's counter, or its head's score."""
        account = self.account
        return self.line.head()[0] if account is None else account.counter

    def since(self) -> int:
        """When its head began to age."""
        score, job = self.line.head()
        account = self.account
        return score if account is None else ages_from(score, job, account.starts)


class Ranking:
    """Flows by a measure that changes under it. For every flow with work there is an entry that is
    not above its present measure."""

    __slots__ = ("_heap", "_measure")

    def __init__(self, measure: Callable[[Flow], int]) -> None:
        self._heap: list[tuple[int, str, Flow]] = []
        self._measure = measure

    def push(self, flow: Flow) -> None:
        heapq.heappush(self._heap, (self._measure(flow), flow.name, flow))

    def head(self) -> Flow | None:
        heap = self._heap
        while heap:
            noted, name, flow = heap[0]
            if flow.parked or not flow.line:
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


def by_order() -> Ranking:
    return Ranking(Flow.order)


def by_age() -> Ranking:
    return Ranking(Flow.since)
