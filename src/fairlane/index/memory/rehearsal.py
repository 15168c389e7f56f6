"""Who would be handed out next, tried out on a copy of a service's lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from fairlane.index.index import EXACT_POSITIONS
from fairlane.index.memory.desk import Desk
from fairlane.index.memory.flows import Flow
from fairlane.index.memory.pick import View
from fairlane.model.entry import Entry
from fairlane.model.service import user_pool
from fairlane.policy.order import choose
from fairlane.policy.shares import Kind, granted

if TYPE_CHECKING:
    from fairlane.index.memory.memory import MemoryIndex


def place_of(index: MemoryIndex, desk: Desk, job: str, now: int) -> int | None:
    """The job's place among the first EXACT_POSITIONS, or None if it is not one of them."""
    turns = islice(_turns(index, desk.rehearsal(EXACT_POSITIONS), now), EXACT_POSITIONS)
    return next((n for n, entry in enumerate(turns, 1) if entry.id == job), None)


def is_at_limit(index: MemoryIndex, flow: Flow) -> bool:
    """Whether the flow's user has as many jobs running as allowed."""
    return flow.cap > 0 and is_user_at_limit(index, flow.user, flow.cap)


def is_user_at_limit(index: MemoryIndex, user: str, cap: int) -> bool:
    pool = index.pools.get(user_pool(user))
    return pool is not None and len(pool.held) >= cap


def _turns(index: MemoryIndex, desk: Desk, now: int) -> Iterator[Entry]:
    """The jobs at this copy of a desk in the order of service, those of users at their running
    limit last. Whoever starts has ended before the next one is chosen."""
    view, tiers, shares = (
        View(desk, [], [*desk.queues.values()]),
        index.catalog.tiers,
        desk.service.shares,
    )
    put_off = [flow for flow in desk.flows.values() if flow.parked]
    limits_count = True
    while True:
        choice = choose(view.heads(now, tiers), desk.credits, shares)
        if choice is None:
            if not put_off:
                return
            limits_count = False
            for flow in put_off:
                desk.unpark(flow)
                view.touched(flow.queue, flow.queue.rank)
            put_off = []
            continue
        flow = desk.flows[choice.candidate.flow]
        if limits_count and is_at_limit(index, flow):
            desk.park(flow)
            put_off.append(flow)
            view.touched(flow.queue, flow.queue.rank)
            continue
        kind = choice.candidate.kind
        desk.credits = granted(desk.credits, kind, shares, jumped=choice.jumped)
        entry = flow.line.pop()
        desk.started(flow, entry, now, in_turn=kind is Kind.FRESH)
        view.touched(flow.queue, entry.rank)
        yield entry
