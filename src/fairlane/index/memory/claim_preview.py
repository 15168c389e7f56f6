"""The claim preview: simulates the next claims on a copy of a service's queues. The exact queue
positions come from it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from fairlane.index.index import EXACT_POSITIONS
from fairlane.index.memory.claim import ServiceView
from fairlane.index.memory.flows import Flow
from fairlane.index.memory.service_queue import ServiceQueue
from fairlane.model.queue_entry import Entry
from fairlane.model.service import user_pool
from fairlane.policy.order import choose
from fairlane.policy.shares import ShareKind, granted

if TYPE_CHECKING:
    from fairlane.index.memory.memory import MemoryIndex


def place_of(index: MemoryIndex, service_queue: ServiceQueue, job: str, now: int) -> int | None:
    """The job's position if it is one of the first EXACT_POSITIONS, else None."""
    turns = front(index, service_queue, now)
    return next((n for n, entry in enumerate(turns, 1) if entry.id == job), None)


def front(index: MemoryIndex, service_queue: ServiceQueue, now: int) -> Iterator[Entry]:
    """The first EXACT_POSITIONS jobs, in the order in which they would start."""
    return islice(_turns(index, service_queue.preview(EXACT_POSITIONS), now), EXACT_POSITIONS)


def is_at_limit(index: MemoryIndex, flow: Flow) -> bool:
    """Whether the flow's user has as many jobs running as allowed."""
    return flow.cap > 0 and is_user_at_limit(index, flow.user, flow.cap)


def is_user_at_limit(index: MemoryIndex, user: str, cap: int) -> bool:
    pool = index.pools.get(user_pool(user))
    return pool is not None and len(pool.held) >= cap


def _turns(index: MemoryIndex, service_queue: ServiceQueue, now: int) -> Iterator[Entry]:
    """The jobs of this copied service queue in the order in which they would start. Jobs of users
    at their running limit come last. Each job is treated as ended before the next is chosen."""
    view, tiers, shares = (
        ServiceView(service_queue, [], [*service_queue.queues.values()]),
        index.catalog.tiers,
        service_queue.service.shares,
    )
    put_off = [flow for flow in service_queue.flows.values() if flow.parked]
    limits_count = True
    while True:
        choice = choose(view.heads(now, tiers), service_queue.credits, shares)
        if choice is None:
            if not put_off:
                return
            limits_count = False
            for flow in put_off:
                service_queue.unpark(flow)
                view.touched(flow.queue, flow.queue.rank)
            put_off = []
            continue
        flow = service_queue.flows[choice.candidate.flow]
        if limits_count and is_at_limit(index, flow):
            service_queue.park(flow)
            put_off.append(flow)
            view.touched(flow.queue, flow.queue.rank)
            continue
        kind = choice.candidate.kind
        service_queue.credits = granted(service_queue.credits, kind, shares, jumped=choice.jumped)
        entry = flow.line.pop()
        service_queue.started(flow, entry, now, in_turn=kind is ShareKind.FRESH)
        view.touched(flow.queue, entry.rank)
        yield entry
