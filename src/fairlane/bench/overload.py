"""What the API does when ten times as much is submitted as it can write: the figures of an
overload, each beside what is wanted."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson
import uvloop

from fairlane.bench import http_client as client
from fairlane.bench.http_client import Client, Served
from fairlane.bench.measure import NAMES, PAYLOAD, Figure
from fairlane.demo.services import Execution, SimulatedService

TIMES = 10
CONNECTIONS = 400
"""Callers in an overload: whoever is due and finds none free waits, and that counts."""

HELD, CALL_SECONDS = 20, 0.5
"""Calls at once of the service that goes on working, and how long each takes."""

WARMING_UP = 200

SETTINGS = """
[services.noop]
[services.held]
url = "{url}"
limit = {limit}
timeout = 60
"""


@dataclass
class Load:
    """What became of everything that was sent: milliseconds by tier, and what should not be."""

    seconds: float = 0.0
    accepted: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in NAMES})
    refused: list[float] = field(default_factory=list)
    other: int = 0
    jobs: list[str] = field(default_factory=list)

    @property
    def taken(self) -> list[float]:
        return [each for tier in self.accepted.values() for each in tier]

    @property
    def goodput(self) -> float:
        return len(self.taken) / self.seconds

    @property
    def sent(self) -> float:
        return (len(self.taken) + len(self.refused) + self.other) / self.seconds


def figures(*, short: bool) -> Iterator[Figure]:
    """One run: an overload is no figure that a median makes better."""
    yield from uvloop.run(measured(2.0 if short else 10.0, 5.0 if short else 60.0))


async def measured(usual: float, overload: float) -> list[Figure]:
    """Seconds of each usual load, and of the overload."""
    chance = random.Random(1)

    async def work(_: Execution) -> str:
        await asyncio.sleep(CALL_SECONDS * chance.uniform(0.5, 1.5))
        return "done"

    service = SimulatedService("held", limit=HELD, work=work)
    async with service.serving():
        settings = SETTINGS.format(url=service.url, limit=HELD)
        async with client.server(settings) as served:
            return await _phases(served, service, usual, overload)


async def _phases(
    served: Served, service: SimulatedService, usual: float, overload: float
) -> list[Figure]:
    await client.single_submits(served.port, WARMING_UP)
    premium = 5 if overload < usual * 5 else 20
    alone = await _premium(served, service, premium, flood=0)
    flooded = await _premium(served, service, premium, flood=100)
    peak = await _submits(served, 1e9, usual, client.CONNECTIONS)
    calm = await _submits(served, 0.7 * peak.goodput, usual, client.CONNECTIONS)
    before = served.megabytes()
    async with _beside(served, calm.jobs) as beside:
        flood = await _submits(served, TIMES * peak.goodput, overload, CONNECTIONS)
    after = served.megabytes()
    storm = await _submits(served, 1e9, usual, CONNECTIONS)
    recovered = await _recovery(served, calm, patience=overload)
    loads = (peak, calm, flood, storm)
    kept = await _waiting(served.port) + len(beside.cancels) - WARMING_UP
    lost = sum(len(load.taken) for load in loads) + recovered.jobs - kept
    return [
        _figure("peak goodput", "jobs/s", peak.goodput, f"{client.CONNECTIONS} connections"),
        _figure("sent", "requests/s", flood.sent, f"wanted {TIMES * peak.goodput:,.0f}"),
        _figure("goodput of peak", "%", 100 * flood.goodput / peak.goodput, "≥ 90"),
        *(
            _figure(f"accepted of tier {tier}", "jobs/s", len(taken) / flood.seconds, "")
            for tier, taken in flood.accepted.items()
        ),
        _figure("accepted submit p99, 70 % load", "ms", _p99(calm.taken), "≤ 250"),
        _figure("accepted submit p99", "ms", _p99(flood.taken), "≤ 500"),
        _figure("refused submit p99", "ms", _p99(flood.refused), "≤ 50"),
        _figure("cancel p99", "ms", _p99(beside.cancels), "≤ 500"),
        _figure("/livez p99", "ms", _p99(beside.lives), "≤ 500"),
        _figure("other answers, hangs, resets", "", flood.other + beside.wrong, "0"),
        _figure("leases lost", "", sum(call.attempt > 1 for call in service.calls), "0"),
        _figure("accepted jobs lost", "", lost, "0"),
        _figure("memory, 70 % load", "MB", before, ""),
        _figure("memory", "MB", after, f"≤ 512, ≤ {1.5 * before:,.0f}"),
        _figure("recovery to p99 of 70 % load", "s", recovered.seconds, "≤ 30"),
        _figure("goodput in a retry storm", "%", 100 * storm.goodput / flood.goodput, "≥ 95"),
        _figure("premium, submit to end, alone p95", "ms", alone, ""),
        _figure("premium under 100 : 1 p95", "ms", flooded, f"≤ {1.2 * alone:,.0f}"),
    ]


# --- load ----------------------------------------------------------------------------------------
async def _submits(served: Served, rate: float, seconds: float, connections: int) -> Load:
    """So many a second by so many callers. A caller who is late sends at once, and nobody waits
    for `Retry-After`."""
    load, numbers = Load(seconds), itertools.count()
    begin = time.perf_counter()

    async def caller(connection: Client) -> None:
        for i in numbers:
            early = begin + i / rate - time.perf_counter()
            if early > 0:
                await asyncio.sleep(early)
            sent_at = time.perf_counter()
            if sent_at - begin >= seconds:
                break
            try:
                status, body = await connection.send(client.post("/api/v1/jobs", client.job(i)))
            except OSError:
                load.other += 1
                return
            took = (time.perf_counter() - sent_at) * 1000
            if status == 202:
                load.accepted[NAMES[i % len(NAMES)]].append(took)
                load.jobs.append(orjson.loads(body)["job_id"])
            elif status in (429, 503) and b"retry-after: " in connection.head:
                load.refused.append(took)
            else:
                load.other += 1
        connection.close()

    callers = [await Client.connect(served.port) for _ in range(connections)]
    begin = time.perf_counter()
    await asyncio.gather(*(caller(each) for each in callers))
    return load


@dataclass
class Beside:
    """What is asked while others flood: milliseconds each took, and answers that are wrong."""

    cancels: list[float] = field(default_factory=list)
    lives: list[float] = field(default_factory=list)
    wrong: int = 0


@asynccontextmanager
async def _beside(served: Served, jobs: Sequence[str]) -> AsyncIterator[Beside]:
    """Ten times a second somebody cancels a job and somebody asks whether the process lives."""
    found, connection = Beside(), await Client.connect(served.port)

    async def ask(method: str, path: str, taken: list[float]) -> None:
        began = time.perf_counter()
        status, _ = await connection.send(client.bare(method, path))
        taken.append((time.perf_counter() - began) * 1000)
        found.wrong += status != 200

    async def go_on() -> None:
        for job in itertools.takewhile(lambda _: not over.is_set(), jobs):
            await ask("DELETE", f"/api/v1/jobs/{job}", found.cancels)
            await ask("GET", "/livez", found.lives)
            await asyncio.sleep(0.1)

    over, task = asyncio.Event(), asyncio.create_task(go_on())
    yield found
    over.set()
    await task
    connection.close()


class Recovery(NamedTuple):
    seconds: float
    jobs: int


async def _recovery(served: Served, calm: Load, *, patience: float) -> Recovery:
    """How long until a second in which nearly all submits were as fast as before."""
    begin, jobs = time.perf_counter(), 0
    while True:
        window = await _submits(served, calm.goodput, 1, client.CONNECTIONS)
        jobs += len(window.taken)
        passed = time.perf_counter() - begin
        if _p99(window.taken) <= 1.2 * _p99(calm.taken) + 1 or passed > patience:
            return Recovery(passed - 1, jobs)


async def _premium(served: Served, service: SimulatedService, number: int, *, flood: int) -> float:
    """From submit to the end of a call of usual length, for jobs of the best tier with so many of
    the lowest before each of them: nearly all are faster."""
    started: dict[str, asyncio.Future[float]] = {}
    loop = asyncio.get_running_loop()

    def heard(call: Execution) -> None:
        begun = started.setdefault(call.job, loop.create_future())
        if not begun.done():
            begun.set_result(loop.time())

    service.heard, connection, waits = heard, await Client.connect(served.port), []
    many = client.post("/api/v1/jobs:batch", {"jobs": [_held("free", "low")] * flood})
    if flood:
        await connection.send(many)
        begun_with = service.finished
        await service.until(lambda it: it.finished >= begun_with + HELD)  # out of step by now
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
    return sorted(waits)[int(len(waits) * 0.95)]


def _held(user: str, tier: str) -> dict[str, object]:
    return {"service": "held", "user_id": user, "priority": tier, "input_data": PAYLOAD}


async def _waiting(port: int) -> int:
    connection = await Client.connect(port)
    _, body = await connection.send(client.bare("GET", "/queue/status"))
    connection.close()
    return int(orjson.loads(body)["services"]["noop"]["waiting"])


def _p99(taken: Sequence[float]) -> float:
    return sorted(taken)[len(taken) * 99 // 100] if taken else 0.0


def _figure(what: str, unit: str, value: float, wanted: str) -> Figure:
    return Figure(
        what, f"wanted {wanted}" if wanted[:1] in ("≤", "≥", "0") else wanted, unit, [value]
    )
