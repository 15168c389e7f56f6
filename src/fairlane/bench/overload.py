"""Overload benchmark: the API under ten times its peak load, each figure beside its target. Server
and load generator share the cores of one machine, so the generator may send less than ten times the
peak: the figures say how much it sent."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

import orjson
import uvloop

from fairlane.bench import http_client as client
from fairlane.bench.http_client import BenchClient, BenchServer
from fairlane.bench.load_generator import LoadOutcome, Plan
from fairlane.bench.measure import PAYLOAD, Figure
from fairlane.bench.percentiles import percentile
from fairlane.compose import cluster
from fairlane.demo.services import SimulatedExecution, SimulatedService
from fairlane.presets import tasks

OVERLOAD_FACTOR = 10
MAX_CONNECTIONS = 1_000
"""Most open connections of the load generator. Its callers ignore `Retry-After`."""

POLITE_CALLERS = 20
"""Additional callers that wait between submits, as `Retry-After` asks."""

HELD, CALL_SECONDS = 20, 0.5
"""Concurrent calls of the simulated service, and the mean seconds of a call."""

WARMING_UP = 200
HEARTBEAT_SECONDS = 1.0
"""Heartbeat interval of the worker in seconds. It loses its lease after three missing
heartbeats."""

PROMISED, PROMISED_ON_CLUSTER = 250, 150
"""Target p99 of an accepted submit at 70 % load, in milliseconds: embedded, and on a cluster."""

SETTINGS = """
[services.noop]
[services.kept]
[services.held]
url = "{url}"
limit = {limit}
timeout = 60
"""


def figures(*, short: bool, on_cluster: bool) -> Iterator[Figure]:
    """The figures of one run: a median over several runs would hide overload failures."""
    usual, overload = (2.0, 5.0) if short else (10.0, 60.0)
    yield from uvloop.run(measured(usual, overload, on_cluster=on_cluster))


async def measured(usual: float, overload: float, *, on_cluster: bool = False) -> list[Figure]:
    """Measure the peak for `usual` seconds, and the overload for `overload` seconds. Each load gets
    a new server, so its memory can be compared with that of a server after 70 % load for the same
    time."""
    promised = PROMISED_ON_CLUSTER if on_cluster else PROMISED
    chance = random.Random(1)

    async def work(_: SimulatedExecution) -> str:
        await asyncio.sleep(CALL_SECONDS * chance.uniform(0.5, 1.5))
        return "done"

    service = SimulatedService("held", limit=HELD, work=work)
    async with service.serving():
        settings = SETTINGS.format(url=service.url, limit=HELD)
        async with _served(settings, on_cluster=on_cluster) as served:
            premium = 5 if overload < usual * 5 else 20
            alone = await _premium(served, service, premium, flood=0)
            flooded = await _premium(served, service, premium, flood=100)
            peak = await generated(Plan(served.port, 0, usual, client.CONNECTIONS))
        async with _served(settings, on_cluster=on_cluster) as served:
            steady = await generated(_most_of(peak, served, overload))
            kept = served.megabytes()
        async with _served(settings, on_cluster=on_cluster) as served:
            found = await _overloaded(served, peak, steady, usual, overload)
    again = sum(call.attempt > 1 for call in service.calls)
    return [
        *_load_figures(peak, steady, found, promised),
        _figure("leases lost", "", found.beside.lost + again, "0"),
        _figure("memory, 70 % load for as long", "MB", kept, ""),
        _figure("memory", "MB", found.memory, f"≤ 512, ≤ {1.5 * kept:,.0f}"),
        _figure("premium, submit to end, alone p95", "ms", alone, ""),
        _figure("premium under 100 : 1 p95", "ms", flooded, f"≤ {1.2 * alone:,.0f}"),
    ]


@asynccontextmanager
async def _served(settings: str, *, on_cluster: bool) -> AsyncIterator[BenchServer]:
    """A new server with an empty ledger, warmed up with a few submits."""
    async with AsyncExitStack() as stack:
        stores: Mapping[str, str] = {}
        if on_cluster:
            from fairlane.servers import Postgres, Redis

            postgres, redis = (
                stack.enter_context(Postgres(fsync=True)),
                stack.enter_context(Redis()),
            )
            database = await postgres.new_database()
            async with await cluster(tasks(), database, redis.url):
                pass  # opening it creates the schema
            stores = {"DATABASE_URL": database, "REDIS_URL": redis.url}
        served = await stack.enter_async_context(client.server(settings, stores))
        await client.single_submits(served.port, WARMING_UP)
        yield served


def _most_of(peak: LoadOutcome, served: BenchServer, seconds: float) -> Plan:
    return Plan(served.port, 0.7 * peak.goodput, seconds, MAX_CONNECTIONS, ids=1_000)


class Overloaded(NamedTuple):
    """The outcome of an overload: the load itself, the requests beside it, the recovery, the
    server's memory (MB), and the number of accepted jobs that were lost."""

    flood: LoadOutcome
    beside: SideMeasurements
    recovered: Recovery
    memory: float
    lost: int


async def _overloaded(
    served: BenchServer, peak: LoadOutcome, steady: LoadOutcome, usual: float, overload: float
) -> Overloaded:
    offered, quiet = OVERLOAD_FACTOR * peak.goodput, _most_of(peak, served, usual)
    calm = await generated(quiet)
    async with _beside(served, calm.jobs) as beside:
        flood = await generated(Plan(served.port, offered, overload, MAX_CONNECTIONS))
    memory = served.megabytes()
    recovered = await _recovery(quiet, steady, patience=overload)
    kept = await _waiting(served.port) + len(beside.cancels) - WARMING_UP
    taken = calm.accepted.number + flood.accepted.number
    lost = taken + len(beside.accepted) + recovered.jobs - kept
    return Overloaded(flood, beside, recovered, memory, lost)


def _load_figures(
    peak: LoadOutcome, steady: LoadOutcome, found: Overloaded, promised: float
) -> list[Figure]:
    flood, beside = found.flood, found.beside
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    shared = f"server and generator share {cores} cores"
    pool = f"{flood.connections:,} connections, at most {MAX_CONNECTIONS:,}"
    answered = flood.accepted.number + flood.refused.number
    return [
        _figure("peak goodput", "jobs/s", peak.goodput, f"{client.CONNECTIONS} connections"),
        _figure("offered", "requests/s", flood.due / flood.seconds, f"{OVERLOAD_FACTOR} × peak"),
        _figure("sent", "requests/s", flood.sent / flood.seconds, shared),
        _figure("sent, times the peak", "×", flood.sent / flood.seconds / peak.goodput, pool),
        _figure("answered", "requests/s", answered / flood.seconds, ""),
        _figure("refused", "requests/s", flood.refused.number / flood.seconds, ""),
        _figure("not sent", "requests/s", flood.unsent / flood.seconds, "no connection was free"),
        _figure("late sends", "", flood.late, "5 to 20 ms after their time"),
        _figure("connection errors", "", flood.errors, "0"),
        _figure("the generator's part of a core", "", flood.cpu, ""),
        _figure("goodput of peak", "%", 100 * flood.goodput / peak.goodput, "≥ 85"),
        *(
            _figure(f"accepted of tier {tier}", "jobs/s", number / flood.seconds, "")
            for tier, number in flood.tiers.items()
        ),
        _figure("accepted submit p99, 70 % load", "ms", steady.accepted.p99, f"≤ {promised}"),
        _figure("accepted submit p99", "ms", flood.accepted.p99, "≤ 500"),
        _figure("refused submit p99, waits as told", "ms", _p99(beside.refused), "≤ 250"),
        _figure("refused submit p99, asks at once", "ms", flood.refused.p99, "≤ 250"),
        _figure("heartbeat of a worker p99", "ms", _p99(beside.heartbeats), "≤ 500"),
        _figure("cancel p99", "ms", _p99(beside.cancels), "≤ 500"),
        _figure("/livez p99", "ms", _p99(beside.lives), "≤ 500"),
        _figure("other answers, hangs", "", flood.wrong + beside.wrong, "0"),
        _figure("accepted jobs lost", "", found.lost, "0"),
        _figure("recovery to p99 of 70 % load", "s", found.recovered.seconds, "≤ 30"),
    ]


# --- load ----------------------------------------------------------------------------------------
async def generated(plan: Plan) -> LoadOutcome:
    """The outcome of a load that a separate process generates."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlane.bench.load_generator", stdin=PIPE, stdout=PIPE
    )
    found, _ = await process.communicate(orjson.dumps(asdict(plan)))
    return LoadOutcome.read(found)


@dataclass
class SideMeasurements:
    """Requests beside the overload: the milliseconds of each, the number of wrong answers, and the
    number of lost leases."""

    cancels: list[float] = field(default_factory=list)
    lives: list[float] = field(default_factory=list)
    heartbeats: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    wrong: int = 0
    lost: int = 0


@asynccontextmanager
async def _beside(served: BenchServer, jobs: Sequence[str]) -> AsyncIterator[SideMeasurements]:
    """Send requests beside the overload: ten times a second a cancel, a liveness check and a
    worker's heartbeat; and from each polite caller a submit once a second."""
    found, over = SideMeasurements(), asyncio.Event()

    async def ask(connection: BenchClient, request: bytes) -> tuple[int, float]:
        began = time.perf_counter()
        status, _ = await connection.send(request)
        return status, (time.perf_counter() - began) * 1000

    async def go_on() -> None:
        connection = await BenchClient.connect(served.port)
        worker = await _worker(connection)
        alive = client.post(f"/internal/workers/{worker}/heartbeat", {"current_load": 1})
        for job in itertools.takewhile(lambda _: not over.is_set(), jobs):
            for taken, request in (
                (found.cancels, client.bare("DELETE", f"/api/v1/jobs/{job}")),
                (found.lives, client.bare("GET", "/livez")),
                (found.heartbeats, alive),
            ):
                status, took = await ask(connection, request)
                taken.append(took)
                found.wrong += status != 200
            await asyncio.sleep(0.1)
        _, said = await connection.send(alive)
        found.lost = len(orjson.loads(said)["lost"])
        connection.close()

    async def submit(number: int) -> None:
        connection = await BenchClient.connect(served.port)
        await asyncio.sleep(number / POLITE_CALLERS)
        while not over.is_set():
            status, took = await ask(connection, client.post("/api/v1/jobs", client.job(number)))
            (found.accepted if status == 202 else found.refused).append(took)
            found.wrong += status not in (202, 503)
            await asyncio.sleep(1)  # the smallest `Retry-After`
        connection.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(go_on())
        for number in range(POLITE_CALLERS):
            group.create_task(submit(number))
        yield found
        over.set()


async def _worker(connection: BenchClient) -> str:
    """Register a worker that holds one task and does not end it. Returns its id."""
    await connection.send(client.post("/api/v1/jobs", client.job(0, "kept")))
    hello = {"task_types": ["kept"], "capacity": 1, "heartbeat_seconds": HEARTBEAT_SECONDS}
    _, body = await connection.send(client.post("/internal/workers/register", hello))
    worker = str(orjson.loads(body)["worker_id"])
    poll = client.post(f"/internal/workers/{worker}/poll", {"available_capacity": 1})
    _, body = await connection.send(poll)
    if len(orjson.loads(body)["tasks"]) != 1:
        raise RuntimeError(f"a worker got no task: {body!r}")
    return worker


class Recovery(NamedTuple):
    seconds: float
    jobs: int


async def _recovery(quiet: Plan, steady: LoadOutcome, *, patience: float) -> Recovery:
    """The seconds until, for one second, the p99 of submits is at most 20 % and 1 ms above its
    value before the overload."""
    begin, jobs = time.perf_counter(), 0
    while True:
        passed = time.perf_counter() - begin
        window = await generated(replace(quiet, seconds=1.0, ids=0))
        jobs += window.accepted.number
        if window.accepted.p99 <= 1.2 * steady.accepted.p99 + 1 or passed > patience:
            return Recovery(passed, jobs)


async def _premium(
    served: BenchServer, service: SimulatedService, number: int, *, flood: int
) -> float:
    """The p95 in milliseconds from submit to the end of a call of mean length, for jobs of the
    highest tier, each submitted behind `flood` jobs of the lowest tier."""
    started: dict[str, asyncio.Future[float]] = {}
    loop = asyncio.get_running_loop()

    def heard(call: SimulatedExecution) -> None:
        begun = started.setdefault(call.job, loop.create_future())
        if not begun.done():
            begun.set_result(loop.time())

    service.heard, connection, waits = heard, await BenchClient.connect(served.port), []
    many = client.post("/api/v1/jobs:batch", {"jobs": [_held("free", "low")] * flood})
    if flood:
        await connection.send(many)
        begun_with = service.finished
        await service.until(lambda it: it.finished >= begun_with + HELD)  # calls no longer in step
    for _ in range(number):
        if flood:
            await connection.send(many)
        sent_at = loop.time()
        _, body = await connection.send(client.post("/api/v1/jobs", _held("premium", "high")))
        job = orjson.loads(body)["job_id"]
        begun = await started.setdefault(job, loop.create_future())
        waits.append((begun - sent_at + CALL_SECONDS) * 1000)
    service.heard = None
    connection.close()
    return percentile(waits, 95)


def _held(user: str, tier: str) -> dict[str, object]:
    return {"service": "held", "user_id": user, "priority": tier, "input_data": PAYLOAD}


async def _waiting(port: int) -> int:
    connection = await BenchClient.connect(port)
    _, body = await connection.send(client.bare("GET", "/queue/status"))
    connection.close()
    return int(orjson.loads(body)["services"]["noop"]["waiting"])


def _p99(taken: Sequence[float]) -> float:
    return percentile(taken, 99) if taken else 0.0


def _figure(what: str, unit: str, value: float, wanted: str) -> Figure:
    return Figure(
        what, f"wanted {wanted}" if wanted[:1] in ("≤", "≥", "0") else wanted, unit, [value]
    )
