"""Benchmark of the generation routes: what they cost in a short and in a long queue. One request at
a time goes to two servers in turn, so that both are measured under the same conditions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import orjson
import uvloop

from fairlane.bench import http_client
from fairlane.bench.http_client import BenchClient, bare, post
from fairlane.bench.measure import Figure
from fairlane.compose import cluster
from fairlane.presets import generation

SHORT_QUEUE, LONG_QUEUE = 1_000, 100_000
MAX_RATIO = 2
"""The most that a route may cost in the long queue, as a multiple of the short one."""

BATCH = 1_000
WARMING_UP = 20
TIERS = ("admin", "creator", "premium", "supporter", "free")
MODELS = ("music", "audio")
USERS = 500
OWN, OWN_EVERY = "ada", 50
"""A user with as many jobs in both queues: every so many-th of the first ones."""

SETTINGS = """
[tiers]
order = ["admin", "creator", "premium", "supporter", "free"]
default = "free"
[tiers.free]
promote = {{ admin = 120 }}
[services.generate]
limit = 1
fairness = "{fairness}"
[limits]
waiting = 1_000_000
"""


class Setup(NamedTuple):
    """Users of the waiting jobs, and whether users take turns."""

    name: str
    fairness: str
    users: int


SETUPS = (
    Setup(f"{USERS} users, first come first served", "none", USERS),
    Setup("every job another user, fair share", "user", LONG_QUEUE),
)


class MeasuredQueue:
    """A server with waiting jobs, one of them processed."""

    def __init__(self, client: BenchClient, setup: Setup) -> None:
        self._client, self._setup = client, setup
        self._jobs: list[str] = []

    async def fill(self, jobs: int) -> None:
        for start in range(0, jobs, BATCH):
            batch = [self._job(n) for n in range(start, min(start + BATCH, jobs))]
            await self.ask(post("/api/v1/jobs:batch", {"jobs": batch}))
        gpu = {"capabilities": [], "task_types": ["generate"], "heartbeat_seconds": 200}
        worker = (await self.ask(post("/internal/workers/register", gpu)))["worker_id"]
        poll = {"available_capacity": 1, "wait_seconds": 5}
        await self.ask(post(f"/internal/workers/{worker}/poll", poll))

    def _job(self, n: int) -> dict[str, object]:
        is_own = n < SHORT_QUEUE and n % OWN_EVERY == 0
        return {
            "service": "generate",
            "user_id": OWN if is_own else f"user-{n % self._setup.users}",
            "priority": TIERS[n % len(TIERS)],
            "model": MODELS[n // len(TIERS) % len(MODELS)],
            "duration": 30,
            "input_data": {"prompt": "a heron at dawn"},
        }

    async def ask(self, request: bytes) -> Any:
        status, body = await self._client.send(request)
        if status >= 300:
            raise RuntimeError(f"not the answer that was expected: {body[:300]!r}")
        return orjson.loads(body)

    # --- the routes --------------------------------------------------------------------------
    async def submit(self, n: int) -> float:
        body = {"user_id": f"new-{n}", "model": "music", "prompt": "a heron", "duration": 30}
        begin = time.perf_counter()
        answer = await self.ask(post("/generate", body))
        took = time.perf_counter() - begin
        self._jobs.append(answer["job_id"])
        return took

    async def cancel(self, n: int) -> float:
        return await self._timed("DELETE", f"/generate/{self._jobs[n]}")

    async def look(self, n: int) -> float:
        return await self._timed("GET", f"/generate/{self._jobs[n]}")

    async def own_queue(self, _: int) -> float:
        return await self._timed("GET", f"/queue-status?user_id={OWN}")

    async def queue_of_all(self, _: int) -> float:
        return await self._timed("GET", "/queue-status")

    async def service_queue(self, _: int) -> float:
        return await self._timed("GET", "/api/queue?limit=100")

    async def status(self, _: int) -> float:
        return await self._timed("GET", "/status")

    async def _timed(self, method: str, path: str) -> float:
        request = bare(method, path)
        begin = time.perf_counter()
        await self.ask(request)
        return time.perf_counter() - begin


ROUTES: dict[str, Callable[[MeasuredQueue, int], Awaitable[float]]] = {
    "POST /generate": MeasuredQueue.submit,
    "GET /generate/{id}": MeasuredQueue.look,
    "GET /queue-status?user_id=": MeasuredQueue.own_queue,
    "GET /queue-status": MeasuredQueue.queue_of_all,
    "GET /api/queue": MeasuredQueue.service_queue,
    "GET /status": MeasuredQueue.status,
    "DELETE /generate/{id}": MeasuredQueue.cancel,
}


def figures(*, short: bool, on_cluster: bool) -> Iterator[Figure]:
    requests, long_queue = (30, 5_000) if short else (300, LONG_QUEUE)
    for setup in SETUPS:
        yield from uvloop.run(measured(setup, requests, long_queue, on_cluster=on_cluster))


async def measured(
    setup: Setup, requests: int, long_queue: int, *, on_cluster: bool
) -> list[Figure]:
    async with AsyncExitStack() as stack:
        queues = []
        for waiting in (SHORT_QUEUE, long_queue):
            queue = await stack.enter_async_context(_served(setup, on_cluster=on_cluster))
            await queue.fill(waiting)
            queues.append(queue)
        found: list[Figure] = []
        for name, route in ROUTES.items():
            taken: tuple[list[float], list[float]] = ([], [])
            first = 0 if name.startswith("DELETE") else -WARMING_UP
            for n in range(first, requests):
                for queue, times in zip(queues, taken, strict=True):
                    times.append(await route(queue, n))
            sizes = (SHORT_QUEUE, long_queue)
            found += _figures(name, setup, dict(zip(sizes, taken, strict=True)))
        return found


def _figures(route: str, setup: Setup, taken: Mapping[int, list[float]]) -> Iterator[Figure]:
    medians = []
    for waiting, times in taken.items():
        ranked = sorted(times[WARMING_UP:])
        medians.append(ranked[len(ranked) // 2])
        last = ranked[len(ranked) * 99 // 100]
        where = f"{setup.name}, {waiting:,} waiting"
        yield Figure(route, f"{where}, p50", "ms", [medians[-1] * 1000])
        yield Figure(route, f"{where}, p99", "ms", [last * 1000])
    ratio = medians[1] / medians[0]
    yield Figure(route, f"{setup.name}, p50 long / short; target ≤ {MAX_RATIO}", "×", [ratio])


@asynccontextmanager
async def _served(setup: Setup, *, on_cluster: bool) -> AsyncIterator[MeasuredQueue]:
    async with AsyncExitStack() as stack:
        stores: Mapping[str, str] = {}
        if on_cluster:
            from fairlane.servers import Postgres, Redis

            postgres = stack.enter_context(Postgres(fsync=True))
            redis = stack.enter_context(Redis())
            database = await postgres.new_database()
            async with await cluster(generation(), database, redis.url):
                pass  # opening it creates the schema
            stores = {"DATABASE_URL": database, "REDIS_URL": redis.url}
        settings = SETTINGS.format(fairness=setup.fairness)
        served = await stack.enter_async_context(http_client.server(settings, stores))
        client = await BenchClient.connect(served.port)
        stack.callback(client.close)
        yield MeasuredQueue(client, setup)
