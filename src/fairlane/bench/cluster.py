"""Benchmarks of a cluster on private servers, and of pgqueuer in the same run."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import uvloop

from fairlane.bench import measure
from fairlane.bench.measure import Figure, catalog, fill, repeat
from fairlane.bench.percentiles import p50_and_p99
from fairlane.bench.worker import lanes
from fairlane.clock import SystemClock
from fairlane.compose import cluster
from fairlane.engine import Engine
from fairlane.index.redis import RedisIndex
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Postgres, Redis

LIMITED, REBUILT, LOW = 1_000, 100_000, 10_000
HIT = 8
"""Bytes that each job writes when it starts."""

CONNECTIONS = 10
"""Callers of the larger submit benchmark: as many as the ledger has connections."""

FROM, TO = 0.15, 0.95
"""The measured part of a drain, as shares of all jobs: without the start and end of processes."""


class Bench:
    def __init__(self, postgres: Postgres, redis: Redis, folder: Path) -> None:
        self._postgres, self._redis, self._folder = postgres, redis, folder
        self._queues = 0

    # --- in this process ---------------------------------------------------------------------
    @asynccontextmanager
    async def queue(self, limit: int) -> AsyncIterator[Engine]:
        async with self._open(limit, *await self._fresh()) as engine:
            gc.collect()
            yield engine

    @asynccontextmanager
    async def _open(self, limit: int, database: str, prefix: str) -> AsyncIterator[Engine]:
        redis = self._redis.url
        async with await cluster(catalog(limit), database, redis, prefix=prefix) as engine:
            yield engine

    async def _fresh(self) -> tuple[str, str]:
        """An empty database and an unused key prefix."""
        self._queues += 1
        return await self._postgres.new_database(), f"{{bench{self._queues}}}:"

    async def claim_cost(self, waiting: int, n: int, rounds: int) -> float:
        _, prefix = await self._fresh()
        async with RedisIndex(catalog(), SystemClock(), self._redis.url, prefix=prefix) as index:
            return await measure.claim_cost(index, waiting, n, rounds)

    async def rebuild_seconds(self, jobs: int) -> float:
        async with self.queue(0) as engine:
            await fill(engine, jobs)
            begin = time.perf_counter()
            await engine.rebuild()
            return time.perf_counter() - begin

    async def passed_by(self, low: int, n: int) -> float:
        """How many low jobs start after a high job was accepted and before it starts, beyond those
        that its worker was already running."""
        async with self.queue(0) as engine:
            await fill(engine, low, "low")
            worker, between = Worker("worker"), 0
            for _ in range(3):
                running = await engine.claim(worker, n)
                high = await engine.submit(measure.job(0, "high"))
                for lease in running:
                    await engine.complete(lease)
                while (leases := await engine.claim(worker, n))[0].job != high.job:
                    between += len(leases)
                for lease in leases:
                    await engine.complete(lease)
            return between

    # --- in separate processes ---------------------------------------------------------------
    async def event_delays(self, jobs: int) -> tuple[float, float]:
        """Milliseconds from the call of `complete` until a listener in another process has read
        that the job has ended: p50 and p99."""
        database, prefix = await self._fresh()
        async with self._open(0, database, prefix) as engine:
            where = [database, self._redis.url, prefix]
            listener = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fairlane.bench.listener", *where, stdin=PIPE, stdout=PIPE
            )
            try:
                taken = [await _event_delay(engine, listener, i) for i in range(jobs)]
            finally:
                listener.terminate()
                await listener.wait()
        return p50_and_p99(taken)

    async def drained(self, jobs: int, n: int, limit: int, processes: int) -> float:
        """Jobs per second, one asyncio task each, drained by workers in separate processes."""
        database, prefix = await self._fresh()
        async with self._open(limit, database, prefix) as engine:
            await fill(engine, jobs)
        where = [database, self._redis.url, prefix, str(limit), str(n)]
        return self._drain("fairlane.bench.worker", where, jobs, processes)

    async def peer_drained(self, jobs: int, n: int, processes: int) -> float:
        from fairlane.bench import pgqueuer_peer as peer

        database, _ = await self._fresh()
        await peer.fill(database, jobs)
        where = [database, str(n)]
        return self._drain("fairlane.bench.pgqueuer_peer", where, jobs, processes)

    async def peer_submits(self, jobs: int, n: int, callers: int) -> float:
        from fairlane.bench import pgqueuer_peer as peer

        database, _ = await self._fresh()
        return jobs / await peer.fill(database, jobs, n, callers)

    def _drain(self, module: str, where: Sequence[str], jobs: int, processes: int) -> float:
        hits = self._folder / f"hits-{self._queues}"
        hits.touch()
        command = [sys.executable, "-m", module, str(hits), *where]
        workers = [
            subprocess.Popen(command, env=os.environ)  # noqa: S603 - our own interpreter and code
            for _ in range(processes)
        ]
        try:
            begin = _when(hits, int(jobs * FROM), workers)
            end = _when(hits, int(jobs * TO), workers)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait()
        return jobs * (TO - FROM) / (end - begin)


async def _event_delay(engine: Engine, listener: asyncio.subprocess.Process, number: int) -> float:
    orders, answers = listener.stdin, listener.stdout
    if orders is None or answers is None:
        raise RuntimeError("the listener process has no pipes")
    accepted = await engine.submit(measure.job(number))
    orders.write(f"{accepted.job}\n".encode())
    (lease,) = await engine.claim(Worker("worker"), 1)
    state, at = "", 0.0
    while state != State.RUNNING:
        state, at = _seen(await answers.readline())
    began = time.monotonic()
    await engine.complete(lease)
    while state != State.COMPLETED:
        state, at = _seen(await answers.readline())
    return (at - began) * 1000


def _seen(line: bytes) -> tuple[str, float]:
    state, at = line.decode().split()
    return state, float(at)


def _when(hits: Path, wanted: int, workers: Sequence[subprocess.Popen[bytes]]) -> float:
    """The time at which this many jobs have started."""
    while hits.stat().st_size < wanted * HIT:
        if any(worker.poll() for worker in workers):
            raise RuntimeError("a worker process has failed")
        time.sleep(0.002)  # noqa: TID251 - nothing else happens in this process
    return time.perf_counter()


def figures(runs: int, jobs: int, *, short: bool, beside: bool) -> Iterator[Figure]:
    """`beside`: also measure pgqueuer, alternating with Fairlane, if it is installed."""
    with (
        Postgres(fsync=True) as postgres,
        Redis() as redis,
        tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder,
    ):
        bench = Bench(postgres, redis, Path(folder))
        yield from _submits(bench, runs, jobs, beside=beside)
        yield from _drains(bench, runs, jobs, beside=beside)
        few = max(200, jobs // 50)
        found = [uvloop.run(measure.latencies(bench.queue, few)) for _ in range(runs)]
        yield Figure("submit → start", "n = 1, idle worker, p50", "ms", [p50 for p50, _ in found])
        yield Figure("submit → start", "n = 1, idle worker, p99", "ms", [p99 for _, p99 in found])
        heard = [uvloop.run(bench.event_delays(few)) for _ in range(runs)]
        what = "complete → read in another process"
        yield Figure("event", f"{what}, p50", "ms", [p50 for p50, _ in heard])
        yield Figure("event", f"{what}, p99", "ms", [p99 for _, p99 in heard])
        for n in (1, 10, 100):
            for waiting in (1_000, 20_000 if short else 100_000):
                rounds = max(5, min(1_000, waiting // 2) // n)
                values = repeat(runs, partial(bench.claim_cost, waiting, n, rounds))
                yield Figure("claim cost", f"n = {n}, {waiting:,} waiting", "µs/job", values)
        many = jobs if short else REBUILT
        values = repeat(1 if short else runs, partial(bench.rebuild_seconds, many))
        yield Figure("rebuild", f"{many:,} jobs", "s", values)
        low = jobs if short else LOW
        for n in (1, 10):
            values = repeat(1, partial(bench.passed_by, low, n))
            what = f"n = {n}, {low:,} low ones wait"
            yield Figure("low jobs before a new high one", what, "jobs", values)


def _submits(bench: Bench, runs: int, jobs: int, *, beside: bool) -> Iterator[Figure]:
    """Beside pgqueuer: the same callers, and as many connections as callers."""
    for callers in (1, CONNECTIONS):
        for n in (1, 10, 100, 1000):
            number = jobs if n >= 100 else max(200, jobs * n // 50)
            ours, theirs = [], list[float]()
            for _ in range(runs):
                ours.append(uvloop.run(measure.batch_submits(bench.queue, number, n, callers)))
                if beside:
                    theirs.append(uvloop.run(bench.peer_submits(number, n, callers)))
            settings = f"n = {n}, {callers} caller{'s' * (callers > 1)}"
            yield Figure("submits", settings, "jobs/s", ours)
            if beside:
                yield Figure("submits of pgqueuer", settings, "jobs/s", theirs)


def _drains(bench: Bench, runs: int, jobs: int, *, beside: bool) -> Iterator[Figure]:
    few = max(200, jobs // 50)
    for processes in (1, 2):
        for n, number in ((1, few), (10, jobs // 2), (100, jobs)):
            ours: dict[int, list[float]] = {0: [], LIMITED: []}
            theirs: list[float] = []
            for _ in range(runs):
                for limit, values in ours.items():
                    values.append(uvloop.run(bench.drained(number, n, limit, processes)))
                if beside and n > 1:
                    theirs.append(uvloop.run(bench.peer_drained(number, n, processes)))
            for limit, values in ours.items():
                where = f"n = {n}, {processes} process{'es' * (processes > 1)}"
                pool = f"pool of {limit}" if limit else "no limited pool"
                at_once = f"{lanes(limit, n)} lanes each"
                yield Figure("drained", f"{where}, {at_once}, {pool}", "jobs/s", values)
            if theirs:
                yield Figure("drained by pgqueuer", f"batch {n}, {processes}", "jobs/s", theirs)


def has_peer() -> bool:
    return importlib.util.find_spec("pgqueuer") is not None
