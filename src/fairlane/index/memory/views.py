"""Looking at the index without changing it: where a job stands, how deep the lines are, who has
waited long enough to be told so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from fairlane.index.index import Depth, Held, PoolUse, Standing, Stats
from fairlane.index.memory.desk import Desk, Queue
from fairlane.index.memory.line import NOBODY
from fairlane.model.entry import Entry
from fairlane.model.job import Band
from fairlane.model.service import Service, is_rate_pool
from fairlane.model.step import Lane, service_of
from fairlane.policy.aging import level

if TYPE_CHECKING:
    from fairlane.index.memory.memory import MemoryIndex

LOOKED_AT = 20_000
FLOWS_AT_ONCE = 1_000
"""Counted without a pause: about half a millisecond."""

"""The most jobs of one line that a pass over promotions looks at."""


def standing(index: MemoryIndex, job: str, now: int) -> Standing | None:
    entry = index.waiting.get(job)
    if entry is None:
        return None
    tiers = index.catalog.tiers
    if job in index.delays:
        return Standing(0, entry.rank, entry.score, 0, 0, ("delayed",))
    desk = index.desks[service_of(entry.lane)]
    flow = desk.flows[desk.flow_name(entry)]
    own_before = flow.line.ahead_of(entry)
    since = flow.since() if own_before == 0 else now
    if flow.account is None:
        since = entry.score
    reached = entry.rank
    if entry.band is Band.TIER:
        reached = level(entry.rank, now - since, tiers.thresholds[entry.rank])
    before = _jobs_before(desk, entry, reached, own_before)
    return Standing(
        position=before + 1,
        level=reached,
        since=since,
        work=before * entry.cost + _running(index, desk, entry),
        behind_own=own_before if flow.account is not None else 0,
        reasons=tuple(_reasons(index, desk, entry, parked=flow.parked)),
    )


def _running(index: MemoryIndex, desk: Desk, entry: Entry) -> int:
    """What is left of the jobs that hold all slots: half of each, as far as anybody knows."""
    pool = index.pools.get(f"svc:{desk.service.name}")
    return 0 if pool is None or pool.spare > 0 else pool.limit * entry.cost // 2


def _jobs_before(desk: Desk, entry: Entry, reached: int, own_before: int) -> int:
    """Jobs that go before this one if nothing new comes: all of better bands and tiers; in its own
    tier, of every user as many as it has of its own before it, plus one for the turn."""
    before = own_before
    for queue in desk.queues.values():
        if queue.band < entry.band or (queue.band is Band.TIER and queue.rank < reached):
            before += queue.count
        elif queue.band is entry.band and (queue.band is not Band.TIER or queue.rank == entry.rank):
            before += _same_tier(desk, queue, entry, own_before)
    return before


def _same_tier(desk: Desk, queue: Queue, entry: Entry, own_before: int) -> int:
    own = desk.flow_name(entry)
    counter = desk.flows[own].order()
    before = 0
    for flow in queue.flows.values():
        if flow.name == own:
            continue
        if flow.account is None:
            before += flow.line.ahead_of(entry)
        else:
            turn = 1 if flow.order() < counter else 0
            before += min(len(flow.line), own_before + turn)
    return before


def _reasons(index: MemoryIndex, desk: Desk, entry: Entry, *, parked: bool) -> list[str]:
    found = []
    service = desk.service
    if service.paused:
        found.append("paused")
    for key in (service.name, *(f"{service.name}@{region}" for region in service.regions)):
        gate = index.gates.get(key)
        if gate.closed:
            found.append(f"closed:{key}:{gate.closed_until}")
    found += _full_pools(index, service, Lane.parse(entry.lane))
    if parked:
        found.append(f"user_running:{entry.cap}")
    if index.hold is not None and index.hold.job == entry.id:
        found.append("reserving")
    return found


def _full_pools(index: MemoryIndex, service: Service, lane: Lane) -> list[str]:
    """Pools without room: those it needs everywhere, and its regions' if none has room."""
    everywhere = [pool.name for pool in index.catalog.pools(service.name, None)]
    regions = lane.regions or tuple(service.regions)
    local = [f"svc:{service.name}@{region}" for region in regions]
    full = [name for name in everywhere if _is_full(index, name)]
    if local and all(_is_full(index, name) for name in local):
        full += local
    return [_fullness(index, name) for name in full]


def _is_full(index: MemoryIndex, pool: str) -> bool:
    use = index.pools.get(pool)
    return use is not None and use.spare <= 0


def _fullness(index: MemoryIndex, pool: str) -> str:
    use = index.pools.get(pool)
    taken = f"{len(use.held)}/{use.limit}" if use is not None else ""
    return f"{'rate' if is_rate_pool(pool) else 'busy'}:{pool}:{taken}"


def promotable(index: MemoryIndex, now: int, limit: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    tiers = index.catalog.tiers
    for desk in index.desks.values():
        for queue in desk.queues.values():
            if queue.band is not Band.TIER or not tiers.thresholds[queue.rank]:
                continue
            for flow in queue.flows.values():
                heads = 1 if flow.account is not None else LOOKED_AT
                for entry in flow.line.first(heads):
                    since = flow.since() if flow.account is not None else entry.score
                    reached = level(queue.rank, now - since, tiers.thresholds[queue.rank])
                    if reached == queue.rank:
                        break
                    if reached < index.waiting[entry.id].announced:
                        found.append((entry.id, reached))
                        if len(found) == limit:
                            return found
    return found


async def stats(index: MemoryIndex) -> Stats:
    """Looks at every flow, with pauses in which others are served. What comes or goes meanwhile
    may be counted or not."""
    depths: dict[tuple[str, int], list[int]] = {}
    oldest: dict[tuple[str, int], int] = {}
    oldest_in: dict[str, int] = {}
    looked_at = 0
    for name, desk in list(index.desks.items()):
        for flow in list(desk.flows.values()):
            looked_at += 1
            if looked_at % FLOWS_AT_ONCE == 0:
                await asyncio.sleep(0)
            head = flow.line.head
            if head is NOBODY:
                continue  # gone since the look began
            key = (name, head.rank)
            depths.setdefault(key, [0, 0])[0] += len(flow.line)
            oldest[key] = min(head.score, oldest.get(key, head.score))
            oldest_in[head.lane] = min(head.score, oldest_in.get(head.lane, head.score))
    delayed = Counter[str]()
    for service, lane, rank, n in index.delays.counts():
        depths.setdefault((service, rank), [0, 0])[1] += n
        delayed[lane] += n
    return Stats(
        depths=[
            Depth(service, rank, waiting, late, oldest.get((service, rank)))
            for (service, rank), (waiting, late) in sorted(depths.items())
        ],
        pools=[PoolUse(pool.name, pool.limit, len(pool.held)) for pool in index.pools],
        gates=index.gates.closed(),
        held=len(index.held),
        idle=len(index.idle),
        lanes={lane: n for desk in index.desks.values() for lane, n in desk.lanes.items()},
        delayed=dict(delayed),
        oldest=oldest_in,
    )


def lanes(index: MemoryIndex, service: str) -> dict[str, int]:
    """Those of delayed jobs too: they will come."""
    desk = index.desks.get(service)
    found = Counter() if desk is None else Counter(desk.lanes)
    found.update(index.delays.lanes_of(service))
    return found


async def pages(index: MemoryIndex, size: int) -> AsyncIterator[list[Entry]]:
    entries = list(index.waiting.values())
    for start in range(0, len(entries), size):
        yield entries[start : start + size]


def differing(index: MemoryIndex, truth: Sequence[Entry]) -> list[tuple[str, Entry | None]]:
    return [
        (entry.id, index.waiting.get(entry.id))
        for entry in truth
        if index.held_revs.get(entry.id) != entry.rev
        and not _same(index.waiting.get(entry.id), entry)
    ]


def _same(known: Entry | None, truth: Entry) -> bool:
    """Cost is only an estimate and the announcement only a note; the rest decides the order."""
    return known is not None and known._replace(cost=0, announced=0) == truth._replace(
        cost=0, announced=0
    )


def unverified(index: MemoryIndex, before: int, limit: int) -> list[Held]:
    seen = index.verified_at
    old = [held for held in index.held.values() if seen.get(held.token, held.at) < before]
    return old[:limit]
