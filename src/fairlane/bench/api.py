"""API benchmarks: each figure is measured with a server in a separate process."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

import uvloop

from fairlane.bench import http_client as client
from fairlane.bench.http_client import Sockets, Speed
from fairlane.bench.measure import Figure
from fairlane.bench.percentiles import percentile
from fairlane.demo.services import SimulatedExecution, SimulatedService

MOST_JOBS = 10_000
BATCH, SOCKETS, SECONDS = 500, 1_000, 10.0
WARMING_UP = 200
CALLS, CALL_SECONDS = 500, 0.01


def figures(runs: int, jobs: int, *, short: bool) -> Iterator[Figure]:
    jobs = min(jobs, MOST_JOBS)
    found = [uvloop.run(_submits(jobs)) for _ in range(runs)]
    singles = [single for single, _ in found]
    at_once = f"n = 1, {client.CONNECTIONS} connections"
    yield Figure("single submits", at_once, "jobs/s", [each.rate for each in singles])
    yield Figure("single submits", f"{at_once}, p99", "ms", [each.p99 for each in singles])
    batches = [batch for _, batch in found]
    yield Figure("batch submits", f"n = {BATCH}, 4 connections", "jobs/s", batches)
    half = statistics.median(each.rate for each in singles) / 2
    paced = [uvloop.run(_paced(half, 2 if short else SECONDS)) for _ in range(runs)]
    pace = f"{half:,.0f} jobs/s, half load"
    yield Figure("submit", f"{pace}, p50", "ms", [each.p50 for each in paced])
    yield Figure("submit", f"{pace}, p99", "ms", [each.p99 for each in paced])
    calls = 50 if short else CALLS
    gaps = [uvloop.run(_gaps(calls)) for _ in range(runs)]
    line = f"limit 1, {calls} calls of {CALL_SECONDS * 1000:g} ms, all in line"
    for name, percent in (("p50", 50), ("p99", 99)):
        values = [percentile(each, percent) for each in gaps]
        yield Figure("end of a call → start of the next", f"{line}, {name}", "ms", values)
    number = 100 if short else SOCKETS
    memory = [uvloop.run(_listening(number)) for _ in range(runs)]
    what = f"{number:,} idle WebSockets"
    yield Figure("server memory", what, "MB", [each.after for each in memory])
    grown = [each.after - each.before for each in memory]
    yield Figure("server memory", f"{what}, more than without", "MB", grown)


async def _submits(jobs: int) -> tuple[Speed, float]:
    async with client.server() as served:
        await client.single_submits(served.port, WARMING_UP)
        single = await client.single_submits(served.port, jobs)
        return single, await client.batch_submits(served.port, 4 * jobs, BATCH)


async def _paced(rate: float, seconds: float) -> Speed:
    async with client.server() as served:
        await client.single_submits(served.port, WARMING_UP)
        return await client.paced_submits(served.port, rate, seconds)


async def _gaps(calls: int) -> list[float]:
    """Milliseconds between two calls in the only slot of a service, while jobs wait for it."""
    begun: list[float] = []
    ended: list[float] = []

    async def work(_: SimulatedExecution) -> str:
        begun.append(time.perf_counter())
        await asyncio.sleep(CALL_SECONDS)
        ended.append(time.perf_counter())
        return "done"

    service = SimulatedService("scarce", limit=1, work=work)
    async with service.serving():
        settings = f'[services.scarce]\nurl = "{service.url}"\nlimit = 1\ntimeout = 60\n'
        async with client.server(settings) as served:
            await client.batch_submits(served.port, calls, calls, connections=1, name="scarce")
            await service.until(lambda it: it.finished == calls)
    return [(start - end) * 1000 for end, start in zip(ended, begun[1:], strict=False)]


async def _listening(number: int) -> Sockets:
    async with client.server() as served:
        return await client.idle_sockets(served, number)
