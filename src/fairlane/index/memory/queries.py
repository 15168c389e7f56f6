"""Read-only queries of the memory index: queue positions, queue depths and due promotions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from fairlane.index.index import (
    EXACT_POSITIONS,
    BandDepth,
    Depth,
    HeldEntry,
    NextJob,
    PoolUse,
    Standing,
    Stats,
    TakenSlot,
    by_band,
)
from fairlane.index.memory import claim_preview
from fairlane.index.memory.claim_preview import is_at_limit, is_user_at_limit, place_of
from fairlane.index.memory.flow_queue import NO_ENTRY
from fairlane.index.memory.flows import Flow
from fairlane.index.memory.service_queue import LaneQueue, ServiceQueue
from fairlane.model.job import Band
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Service, is_rate_pool
from fairlane.model.step import Lane, service_of
from fairlane.policy.aging import level
from fairlane.policy.circuit_breaker import CircuitBreaker

if TYPE_CHECKING:
    from fairlane.index.memory.memory import MemoryIndex

MAX_PROMOTION_SCAN = 20_000
"""The most jobs of one flow that `promotable` examines."""

MAX_FLOWS_EXAMINED = 1_000
"""The most flows of one queue from which the jobs ahead of a job are estimated."""

FLOWS_AT_ONCE = 1_000
"""Flows that `stats` counts before it yields to the event loop: about half a millisecond."""


def standing(index: MemoryIndex, job: str, now: int) -> Standing | None:
    found = estimated(index, job, now)
    if found is None or found.position == 0:
        return found
    entry = index.waiting[job]
    if is_far(found, fresh=_is_fresh(index, entry, found, now)):
        return found
    place = place_of(index, index.service_queues[service_of(entry.lane)], job, now)
    return found._replace(position=place or max(EXACT_POSITIONS + 1, found.position))


def _is_fresh(index: MemoryIndex, entry: Entry, found: Standing, now: int) -> bool:
    """Whether the job is scheduled by its tier only: not as a skip, a front retry or aged."""
    overdue = 0 < index.catalog.tiers.patience[entry.rank] <= now - found.since
    return entry.band is Band.TIER and found.level == entry.rank and not overdue


def is_far(found: Standing, *, fresh: bool) -> bool:
    """Whether the job is certainly not one of the first EXACT_POSITIONS. Only skips, front retries
    and aged jobs start much earlier than estimated."""
    return fresh and found.position > 2 * EXACT_POSITIONS


class FlowSamples:
    """A sample of the flows of each queue: all of them, or every n-th one so that they are about
    `most`. Each is taken once."""

    def __init__(self, most: int = MAX_FLOWS_EXAMINED) -> None:
        self._most = most
        self._taken: dict[tuple[str, Band, int], tuple[int, list[Flow]]] = {}

    def of(self, queue: LaneQueue) -> tuple[int, list[Flow]]:
        """The number of flows that each flow of the sample stands for, and the sample."""
        found = self._taken.get(queue.key)
        if found is None:
            step = max(1, len(queue.flows) // self._most)
            found = self._taken[queue.key] = step, [*islice(queue.flows.values(), 0, None, step)]
        return found


def estimated(
    index: MemoryIndex, job: str, now: int, samples: FlowSamples | None = None
) -> Standing | None:
    """The estimated position of the job, without a preview of the next claims."""
    entry = index.waiting.get(job)
    if entry is None:
        return None
    tiers = index.catalog.tiers
    reasons = _reasons(index, entry, now)
    if job in index.delays:
        return Standing(0, entry.rank, entry.score, 0, 0, ("delayed", *reasons))
    service_queue = index.service_queues[service_of(entry.lane)]
    flow = service_queue.flows[service_queue.flow_name(entry)]
    own_before = flow.line.ahead_of(entry)
    since = flow.since() if own_before == 0 else now
    if flow.account is None:
        since = entry.score
    reached = entry.rank
    if entry.band is Band.TIER:
        reached = level(entry.rank, now - since, tiers.thresholds[entry.rank])
    ahead = _jobs_before(service_queue, entry, reached, own_before, samples or FlowSamples())
    at_limit = is_at_limit(index, flow)
    behind = (
        sum(queue.count for queue in service_queue.queues.values()) - len(flow.line) + own_before
    )
    return Standing(
        position=(behind if at_limit else ahead) + 1,
        level=reached,
        since=since,
        ahead=ahead,
        behind_own=own_before if flow.account is not None else 0,
        reasons=tuple(reasons),
    )


def _jobs_before(
    service_queue: ServiceQueue,
    entry: Entry,
    reached: int,
    own_before: int,
    samples: FlowSamples,
) -> int:
    """The number of jobs that probably start before this one if none arrive: all jobs of better
    bands and tiers. In its own tier, from every other user as many as this user has before the job,
    plus one if the other user is served first."""
    before = own_before
    tier = entry.band is Band.TIER
    for queue in service_queue.queues.values():
        better = queue.band is Band.TIER and queue.rank < reached
        if queue.band < entry.band or (tier and better):
            before += queue.count
        elif queue.band is entry.band and (not tier or queue.rank == entry.rank):
            step, sample = samples.of(queue)
            before += step * _same_tier(service_queue, sample, entry, own_before)
    return before


def _same_tier(
    service_queue: ServiceQueue, flows: Sequence[Flow], entry: Entry, own_before: int
) -> int:
    own = service_queue.flow_name(entry)
    counter = service_queue.flows[own].order()
    before = 0
    for flow in flows:
        if flow.name == own:
            continue
        if flow.account is None:
            before += flow.line.ahead_of(entry)
        else:
            turn = 1 if flow.order() < counter else 0
            before += min(len(flow.line), own_before + turn)
    return before


def _reasons(index: MemoryIndex, entry: Entry, now: int) -> list[str]:
    found = []
    lane = Lane.parse(entry.lane)
    service = index.catalog.service(lane.service)
    if service.paused:
        found.append("paused")
    failing, full = _stopped_regions(index, service, lane, now)
    keys = [service.name] if index.breakers.get(service.name).is_open else []
    keys += [f"{service.name}@{region}" for region in failing]
    found += [_breaker_reason(key, index.breakers.get(key), now) for key in keys]
    pools = [pool.name for pool in index.catalog.pools(service.name, None)]
    pools = [name for name in pools if _is_full(index, name, now)]
    pools += [f"svc:{service.name}@{region}" for region in full]
    found += [reason for name in pools for reason in _fullness(index, name)]
    if entry.cap and is_user_at_limit(index, entry.user, entry.cap):
        found.append(f"user_running:{entry.cap}")
    if index.hold is not None and index.hold.job == entry.id:
        found.append("reserving")
    return found


def _stopped_regions(
    index: MemoryIndex, service: Service, lane: Lane, now: int
) -> tuple[list[str], list[str]]:
    """If no allowed region can start a job: the regions with an open circuit breaker, and the other
    ones, which are full. Otherwise none."""
    regions = lane.regions or tuple(service.regions)
    failing, full = [], []
    for region in regions:
        if index.breakers.get(f"{service.name}@{region}").is_open:
            failing.append(region)
        elif _is_full(index, f"svc:{service.name}@{region}", now):
            full.append(region)
    return (failing, full) if len(failing) + len(full) == len(regions) else ([], [])


def _breaker_reason(key: str, breaker: CircuitBreaker, now: int) -> str:
    code = "probing" if breaker.probe and breaker.open_until <= now else "closed"
    return f"{code}:{key}:{breaker.open_until}"


def _is_full(index: MemoryIndex, pool: str, now: int) -> bool:
    use = index.pools.get(pool)
    if use is not None:
        use.expire(now)
    return use is not None and use.spare <= 0


def _fullness(index: MemoryIndex, pool: str) -> list[str]:
    """The use of a full pool: `busy` counts all taken slots, `kept` those kept for calls that were
    cut off, with the time at which the first of these expires."""
    use = index.pools.get(pool)
    if use is None:
        return []
    held = len(use.held)
    if is_rate_pool(pool):
        return [f"rate:{pool}:{held}/{use.limit}"]
    kept = use.kept_until()
    found = [f"kept:{pool}:{len(kept)}/{use.limit}:{kept[0]}"] if kept else []
    return found if len(kept) == held else [f"busy:{pool}:{held}/{use.limit}", *found]


def promotable(index: MemoryIndex, now: int, limit: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    tiers = index.catalog.tiers
    for service_queue in index.service_queues.values():
        for queue in service_queue.queues.values():
            if queue.band is not Band.TIER or not tiers.thresholds[queue.rank]:
                continue
            for flow in queue.flows.values():
                heads = 1 if flow.account is not None else MAX_PROMOTION_SCAN
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


class Depths:
    """The numbers of waiting jobs by service and rank, and the times since which the oldest jobs
    wait, by service and rank and by lane."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], list[int]] = {}
        self.oldest: dict[tuple[str, int], int] = {}
        self.oldest_in: dict[str, int] = {}

    def add(self, service: str, head: Entry, n: int) -> None:
        """Add n waiting jobs that begin with this one."""
        key = (service, head.rank)
        self.counts.setdefault(key, [0, 0])[0] += n
        self.oldest[key] = min(head.score, self.oldest.get(key, head.score))
        self.oldest_in[head.lane] = min(head.score, self.oldest_in.get(head.lane, head.score))

    def add_queue(self, service: str, queue: LaneQueue, examined: int) -> None:
        """Add all jobs of a queue. Flows that are not examined, the newest ones, count for the tier
        of the last examined one."""
        left, head = queue.count, NO_ENTRY
        for flow in islice(queue.flows.values(), examined):
            head = flow.line.head
            self.add(service, head, len(flow.line))
            left -= len(flow.line)
        if left and head is not NO_ENTRY:
            self.counts[service, head.rank][0] += left


async def stats(index: MemoryIndex, examined: int | None = None) -> Stats:
    """Counts every flow and yields to the event loop in between, or examines only some flows. Jobs
    that arrive or leave meanwhile may be counted or not."""
    found = Depths()
    if examined is None:
        await _count_flows(index, found)
    else:
        for name, service_queue in index.service_queues.items():
            for queue in service_queue.queues.values():
                found.add_queue(name, queue, examined)
    depths, oldest = found.counts, found.oldest
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
        breakers=index.breakers.open_breakers(),
        held=len(index.held),
        idle=len(index.idle),
        lanes={
            lane: n
            for service_queue in index.service_queues.values()
            for lane, n in service_queue.lanes.items()
        },
        delayed=dict(delayed),
        oldest=found.oldest_in,
        front=_front_retries(index),
    )


def _front_retries(index: MemoryIndex) -> dict[str, int]:
    """The number of waiting front retries in each lane that has any."""
    return {
        queue.key[0]: queue.count
        for service_queue in index.service_queues.values()
        for queue in service_queue.queues.values()
        if queue.band is Band.FRONT and queue.count
    }


async def _count_flows(index: MemoryIndex, found: Depths) -> None:
    looked_at = 0
    for name, service_queue in list(index.service_queues.items()):
        for flow in list(service_queue.flows.values()):
            looked_at += 1
            if looked_at % FLOWS_AT_ONCE == 0:
                await asyncio.sleep(0)
            head = flow.line.head
            if head is NO_ENTRY:
                continue  # emptied while this was counting
            found.add(name, head, len(flow.line))


def lanes(index: MemoryIndex, service: str) -> dict[str, int]:
    """The number of jobs in each lane, delayed ones included."""
    service_queue = index.service_queues.get(service)
    found = Counter() if service_queue is None else Counter(service_queue.lanes)
    found.update(index.delays.lanes_of(service))
    return found


def front(index: MemoryIndex, service: str, n: int, now: int) -> list[NextJob]:
    service_queue = index.service_queues.get(service)
    if service_queue is None:
        return []
    return list(claim_preview.front(index, service_queue, min(n, EXACT_POSITIONS), now))


def held_slots(index: MemoryIndex, pools: Sequence[str]) -> list[TakenSlot]:
    found = []
    for name in pools:
        pool = index.pools.get(name)
        until = pool.expiries() if pool is not None else {}
        for n, token in sorted(pool.held.items()) if pool is not None else ():
            known = index.held.get(token)
            slot = Slot(name, n, until.get((n, token), 0))
            found.append(
                TakenSlot(slot, token, known and known.entry, known.at if known is not None else 0)
            )
    return found


def band_depths(index: MemoryIndex, service: str) -> list[BandDepth]:
    service_queue = index.service_queues.get(service)
    if service_queue is None:
        return []
    return by_band(
        BandDepth(queue.band, queue.rank, queue.count, len(queue.flows))
        for queue in service_queue.queues.values()
    )


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
    """Whether two entries agree in everything that decides the order. `cost` is an estimate and
    `announced` a note: both are ignored."""
    return known is not None and known._replace(cost=0, announced=0) == truth._replace(
        cost=0, announced=0
    )


def unverified(index: MemoryIndex, before: int, limit: int) -> list[HeldEntry]:
    seen = index.verified_at
    old = [held for held in index.held.values() if seen.get(held.token, held.at) < before]
    return old[:limit]
