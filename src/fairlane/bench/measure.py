"""Benchmarks of an engine. Every figure uses real stores with durable commits."""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from fairlane.bench.percentiles import p50_and_p99
from fairlane.clock import SystemClock
from fairlane.compose import embedded
from fairlane.engine import Engine
from fairlane.engine.settle import Done
from fairlane.index.index import Freed, Index
from fairlane.index.memory import MemoryIndex
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band, NewJob
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Service
from fairlane.model.worker import Loaded, Worker
from fairlane.presets import tasks

PAYLOAD = {"text": "x" * 187}
USERS = 100
CALLERS, LANES = 50, 16
"""Concurrent submitters and workers. While one waits for its commit, the rest prepare theirs."""

NAMES = tasks().tiers.names


class Figure(NamedTuple):
    """One measurement: its name, settings, unit, the value of every run, and the 95 % interval of
    the median where one is computed."""

    what: str
    settings: str
    unit: str
    values: list[float]
    interval: tuple[float, float] | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def catalog(limit: int = 0) -> Catalog:
    return Catalog(tasks().tiers, [Service("noop", limit=limit)])


def job(i: int, tier: str | None = None) -> NewJob:
    return NewJob("noop", PAYLOAD, user=f"user-{i % USERS}", tier=tier or NAMES[i % len(NAMES)])


Queue = Callable[[int], AbstractAsyncContextManager[Engine]]
"""Opens an empty queue whose service has this limit; 0 = none."""


@asynccontextmanager
async def embedded_queue(limit: int) -> AsyncIterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        async with await embedded(catalog(limit), Path(folder) / "ledger.db") as engine:
            gc.collect()
            yield engine


def repeat(runs: int, measure: Callable[[], Coroutine[Any, Any, float]]) -> list[float]:
    return [uvloop.run(measure()) for _ in range(runs)]


async def batch_submits(queue: Queue, jobs: int, n: int, callers: int = CALLERS) -> float:
    """Jobs per second, n jobs per call, each call answered after its durable commit."""
    async with queue(0) as engine:
        batches = iter([[job(i) for i in range(b, min(b + n, jobs))] for b in range(0, jobs, n)])

        async def caller() -> None:
            for batch in batches:
                await engine.submit_many(batch)

        return jobs / await _timed(*(caller() for _ in range(callers)))


async def single_submits(queue: Queue, jobs: int, callers: int) -> float:
    """Jobs per second, one job per call, each call answered after its durable commit."""
    async with queue(0) as engine:
        numbers = iter(range(jobs))

        async def caller() -> None:
            for i in numbers:
                await engine.submit(job(i))

        return jobs / await _timed(*(caller() for _ in range(callers)))


async def fill(engine: Engine, jobs: int, tier: str | None = None) -> None:
    for start in range(0, jobs, 1000):
        batch = [job(i, tier) for i in range(start, min(start + 1000, jobs))]
        await engine.submit_many(batch)


async def drained(queue: Queue, jobs: int, n: int, limit: int) -> float:
    """Jobs per second from queued to completed, claimed and settled n at a time."""
    async with queue(limit) as engine:
        await fill(engine, jobs)
        left = jobs

        async def lane(number: int) -> None:
            nonlocal left
            worker = Worker(f"worker-{number}")
            while left > 0:
                leases = await engine.claim(worker, n)
                if not leases:
                    return
                await engine.settle([Done(lease) for lease in leases])
                left -= len(leases)

        took = await _timed(*(lane(i) for i in range(LANES)))
        if left:
            raise RuntimeError(f"{left} jobs were not drained")
        return jobs / took


async def latencies(queue: Queue, jobs: int) -> tuple[float, float]:
    """Milliseconds from the call of submit to the start in an idle worker: p50 and p99."""
    async with queue(0) as engine:
        waits: list[float] = []
        worker = Worker("worker")
        started = asyncio.Event()

        async def work() -> None:
            for _ in range(jobs):
                (lease,) = await engine.claim(worker, 1, wait=60)
                waits.append(time.perf_counter())
                await engine.complete(lease)
                started.set()

        task = asyncio.create_task(work())
        taken = []
        for i in range(jobs):
            started.clear()
            begin = time.perf_counter()
            await engine.submit(job(i))
            await started.wait()
            taken.append((waits[i] - begin) * 1000)
        await task
        return p50_and_p99(taken)


async def memory_claim_cost(waiting: int, n: int, rounds: int) -> float:
    return await claim_cost(MemoryIndex(catalog(), SystemClock()), waiting, n, rounds)


async def claim_cost(index: Index, waiting: int, n: int, rounds: int) -> float:
    """Microseconds per job that the index needs to choose n jobs, with this many waiting."""
    await index.begin("bench")
    await index.open("bench", 0)
    entries = [
        Entry(f"{i:032x}", 1, "noop||", Band.TIER, i % 3, i, i, f"u:{i % USERS}", "", 10**6)
        for i in range(waiting)
    ]
    for start in range(0, waiting, 10_000):
        await index.put(entries[start : start + 10_000], waiting)
    gc.collect()
    worker, taken, spent = Worker("worker"), 0, 0.0
    for _ in range(rounds):
        begin = time.perf_counter()
        picks = await index.claim(worker, Loaded(), n, waiting, "bench")
        spent += time.perf_counter() - begin
        taken += len(picks.proposals)
        await index.free([Freed(each.token) for each in picks.proposals], waiting)
    return spent / taken * 1_000_000


async def _timed(*work: Coroutine[Any, Any, None]) -> float:
    gc.collect()
    gc.freeze()  # the collector does not scan the prepared requests
    try:
        begin = time.perf_counter()
        await asyncio.gather(*work)
        return time.perf_counter() - begin
    finally:
        gc.unfreeze()
