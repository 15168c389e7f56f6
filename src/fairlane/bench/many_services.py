"""Claim cost over many services, and over many models of one service, of the index alone. Claims
with few and with many services are measured in turn."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import NamedTuple

import uvloop

from fairlane.bench.measure import USERS, Figure
from fairlane.clock import SystemClock
from fairlane.index.index import Freed, Index
from fairlane.index.memory import MemoryIndex
from fairlane.index.redis import RedisIndex
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Service
from fairlane.model.worker import Loaded, Worker
from fairlane.presets import tasks
from fairlane.servers import Redis

WAITING, SHORT_WAITING = 100_000, 4_000
CLAIMED, MODELS = (1, 10, 100), 87
ROUNDS, SHORT_ROUNDS = 40, 5
"""Claims of each size in one run."""

EPOCH = "bench"
COST = 1_000_000

OpenIndex = Callable[[Catalog], AbstractAsyncContextManager[Index]]


class Spread(NamedTuple):
    """How many services and models the waiting jobs are spread over."""

    services: int
    models: int

    def __str__(self) -> str:
        several = f"{self.services} service{'s' * (self.services > 1)}"
        return f"{several}, {self.models} models" if self.models else several


def figures(
    runs: int, services: Sequence[int], *, short: bool, on_cluster: bool
) -> Iterator[Figure]:
    """Milliseconds or microseconds of one claim, for each number of services."""
    waiting = SHORT_WAITING if short else WAITING
    rounds = SHORT_ROUNDS if short else ROUNDS
    spreads = [*(Spread(each, 0) for each in services), Spread(1, 1), Spread(1, MODELS)]
    with Redis() if on_cluster else nullcontext() as server:
        found = uvloop.run(_measured(_opener(server), spreads, runs, waiting, rounds))
    for n in CLAIMED:
        for spread in spreads:
            where = f"n = {n}, {spread}, {waiting:,} waiting"
            yield Figure("claim", where, "µs", found[spread, n])


def _opener(server: Redis | None) -> OpenIndex:
    if server is None:
        return lambda catalog: nullcontext(MemoryIndex(catalog, SystemClock()))
    numbers = iter(range(1_000))
    return lambda catalog: RedisIndex(
        catalog, SystemClock(), server.url, prefix=f"{{bench{next(numbers)}}}:"
    )


async def _measured(
    opener: OpenIndex, spreads: list[Spread], runs: int, waiting: int, rounds: int
) -> dict[tuple[Spread, int], list[float]]:
    found: dict[tuple[Spread, int], list[float]] = {}
    for _ in range(runs):
        for spread in spreads:
            async with _filled(opener, spread, waiting) as index:
                for n in CLAIMED:
                    taken = await _claims(index, n, rounds, waiting)
                    found.setdefault((spread, n), []).append(taken)
    return found


@asynccontextmanager
async def _filled(opener: OpenIndex, spread: Spread, waiting: int) -> AsyncIterator[Index]:
    services = [Service(f"service-{i}") for i in range(spread.services)]
    async with opener(Catalog(tasks().tiers, services)) as index:
        await index.begin(EPOCH)
        await index.open(EPOCH, 0)
        entries = [_entry(i, spread) for i in range(waiting)]
        for start in range(0, waiting, 1_000):
            await index.put(entries[start : start + 1_000], waiting)
        gc.collect()
        yield index


def _entry(i: int, spread: Spread) -> Entry:
    user, rank = i % USERS, i // USERS % 3
    service = i // 7 % spread.services  # a user has jobs in many services
    model = f"model-{user % spread.models}" if spread.models else ""
    lane = f"service-{service}||"
    return Entry(f"{i:032x}", 1, lane, Band.TIER, rank, i, i, f"u:{user}", model, COST)


async def _claims(index: Index, n: int, rounds: int, now: int) -> float:
    """The median time of a claim of n jobs, in microseconds. The jobs end before the next claim."""
    worker, taken = Worker("worker"), []
    for _ in range(rounds):
        begin = time.perf_counter()
        picks = await index.claim(worker, Loaded(), n, now, EPOCH)
        taken.append((time.perf_counter() - begin) * 1_000_000)
        if len(picks.proposals) < n:
            raise RuntimeError("too few jobs wait")
        await index.free([Freed(each.token) for each in picks.proposals], now)
    return statistics.median(taken)
