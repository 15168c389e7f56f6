"""Benchmarks of no-op tasks through the worker SDK: directly on a cluster, in the program of an
embedded queue, and over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from fairlane import AsyncClient, JobRequest
from fairlane.bench.http_client import HOST, server
from fairlane.bench.measure import PAYLOAD, USERS, Figure
from fairlane.bench.percentiles import p50_and_p99
from fairlane.bench.task_worker import CAPACITY, HITS, NAME, RECORD, Hit, worker_of
from fairlane.compose import cluster, embedded
from fairlane.config.load import without_settings
from fairlane.engine import Engine
from fairlane.model.job import NewJob
from fairlane.presets import tasks
from fairlane.servers import Postgres, Redis

FROM, TO = 0.15, 0.95
"""The measured part of a drain, as shares of all tasks: without the start and end of processes."""

EACH_SECOND = 50
HIGH, LOW = 8, 10_000
CAPACITIES = (10, 100)
SUBMIT_BATCH = 1_000
POLL_SECONDS = 0.002

Submit = Callable[[Sequence[JobRequest]], Awaitable[object]]


class Way(NamedTuple):
    """A way to reach a queue: the submit function, and the arguments of the worker process. Without
    arguments the worker runs in this process."""

    submit: Submit
    arguments: tuple[str, ...]
    engine: Engine | None = None


Open = Callable[[], AbstractAsyncContextManager[Way]]


# --- where the queue is --------------------------------------------------------------------------
def into(engine: Engine) -> Submit:
    async def submit(requests: Sequence[JobRequest]) -> None:
        await engine.submit_many(
            [NewJob(each.name, each.input, user=each.user, tier=each.priority) for each in requests]
        )

    return submit


@asynccontextmanager
async def in_the_program() -> AsyncIterator[Way]:
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        async with await embedded(tasks(), Path(folder) / "ledger.db") as engine:
            yield Way(into(engine), (), engine)


@asynccontextmanager
async def over_http(**stores: str) -> AsyncIterator[Way]:
    async with server(environment=stores) as served:
        url = f"http://{HOST}:{served.port}"
        async with AsyncClient(url) as client:
            yield Way(client.submit_many, ("--url", url))


class Cluster:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    @asynccontextmanager
    async def straight(self) -> AsyncIterator[Way]:
        database = await self._postgres.new_database()
        with Redis() as redis:
            async with await cluster(tasks(), database, redis.url) as engine:
                where = ("--database-url", database, "--redis-url", redis.url)
                yield Way(into(engine), where)

    @asynccontextmanager
    async def over_http(self) -> AsyncIterator[Way]:
        database = await self._postgres.new_database()
        with Redis() as redis:
            async with await cluster(tasks(), database, redis.url):
                pass  # opening it creates the schema
            async with over_http(DATABASE_URL=database, REDIS_URL=redis.url) as way:
                yield way


# --- what is measured ----------------------------------------------------------------------------
class Working:
    """A running worker, and the starts that it has recorded."""

    def __init__(self, hits: Path) -> None:
        self._hits = hits

    def read(self) -> list[Hit]:
        return Hit.read(self._hits)

    async def noted(self, wanted: int) -> float:
        """The time at which this many tasks had started."""
        while self._hits.stat().st_size < wanted * RECORD.size:  # noqa: ASYNC110 - a file
            await asyncio.sleep(POLL_SECONDS)
        return time.perf_counter()


@asynccontextmanager
async def working(way: Way, capacity: int) -> AsyncIterator[Working]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-bench-"))
        hits = Path(folder) / "hits"
        hits.touch()
        if way.engine is not None:
            worker = worker_of(hits, capacity)
            task = asyncio.create_task(worker.serve_on(way.engine))
            stack.push_async_callback(asyncio.wait, (task,))
            stack.callback(worker.drain)
        else:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fairlane", "worker", "fairlane.bench.task_worker:worker",
                *way.arguments,
                env={**without_settings(os.environ), HITS: str(hits), CAPACITY: str(capacity)},
            )  # fmt: skip
            stack.push_async_callback(process.wait)
            stack.callback(process.terminate)
        yield Working(hits)


def request(number: int, priority: str, at: int = 0) -> JobRequest:
    sent = {**PAYLOAD, "number": number, "at": at}
    return JobRequest(NAME, sent, user=f"user-{number % USERS}", priority=priority)


async def fill(way: Way, jobs: int) -> None:
    for start in range(0, jobs, SUBMIT_BATCH):
        await way.submit([request(i, "low") for i in range(start, min(start + SUBMIT_BATCH, jobs))])


async def drained(opened: Open, jobs: int, capacity: int) -> float:
    """Tasks per second, one worker process."""
    async with opened() as way:
        await fill(way, jobs)
        async with working(way, capacity) as at:
            begin = await at.noted(int(jobs * FROM))
            end = await at.noted(int(jobs * TO))
    return jobs * (TO - FROM) / (end - begin)


async def latencies(opened: Open, jobs: int) -> tuple[float, float]:
    """Milliseconds from the call of submit to the start in an idle worker: p50 and p99."""
    async with opened() as way, working(way, 10) as at:
        await way.submit([request(0, "high")])
        await at.noted(1)
        submitting = []
        for number in range(jobs):
            wish = request(number, "high", time.monotonic_ns())
            submitting.append(asyncio.ensure_future(way.submit([wish])))
            await asyncio.sleep(1 / EACH_SECOND)
        await asyncio.gather(*submitting)
        await at.noted(jobs + 1)
        return p50_and_p99(
            (hit.started - hit.submitted) / 1e6 for hit in at.read() if hit.submitted
        )


async def passed_by(opened: Open, low: int, capacity: int, high: int = HIGH) -> float:
    """The most low tasks that started after a high one was accepted and before it started, while
    one worker drains. Tasks that the worker had taken before count, too."""
    accepted: dict[int, int] = {}
    async with opened() as way:
        await fill(way, low)
        async with working(way, capacity) as at:
            for number in range(1, high + 1):
                await at.noted(low * number // (high + 2))
                await way.submit([request(number, "high", time.monotonic_ns())])
                accepted[number] = time.monotonic_ns()
            await at.noted(low + high)
            hits = at.read()
    starts = [hit.started for hit in hits if not hit.submitted]
    return max(
        sum(accepted[hit.number] < start < hit.started for start in starts)
        for hit in hits
        if hit.submitted
    )


def figures(runs: int, jobs: int, *, short: bool, on_cluster: bool) -> Iterator[Figure]:
    if not on_cluster:
        yield from _figures("in the program", in_the_program, runs, jobs, short=short)
        yield from _figures("over HTTP", over_http, runs, jobs, short=short)
        return
    with Postgres(fsync=True) as postgres:
        place = Cluster(postgres)
        yield from _figures("straight on the cluster", place.straight, runs, jobs, short=short)
        yield from _figures("over HTTP", place.over_http, runs, jobs, short=short)


def _figures(where: str, opened: Open, runs: int, jobs: int, *, short: bool) -> Iterator[Figure]:
    for capacity in CAPACITIES:
        values = [uvloop.run(drained(opened, jobs, capacity)) for _ in range(runs)]
        yield Figure("tasks drained", f"{where}, capacity {capacity}", "tasks/s", values)
    few = EACH_SECOND if short else 6 * EACH_SECOND
    found = [uvloop.run(latencies(opened, few)) for _ in range(runs)]
    for name, values in (("p50", [p50 for p50, _ in found]), ("p99", [p99 for _, p99 in found])):
        pace = f"{where}, {EACH_SECOND}/s, {name}"
        yield Figure("submit → start of a task", pace, "ms", values)
    low = 1_000 if short else LOW
    for capacity in CAPACITIES:
        values = [uvloop.run(passed_by(opened, low, capacity))]
        what = f"{where}, capacity {capacity}, {low:,} low ones"
        yield Figure("low tasks before a new high one", what, "tasks", values)
