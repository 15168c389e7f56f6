"""Figures of the API, each from a server in a process of its own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import uvloop

from fairlane.bench import http_client as client
from fairlane.bench.http_client import Sockets, Speed
from fairlane.bench.measure import Figure

MOST_JOBS = 10_000
BATCH, SOCKETS, SECONDS = 500, 1_000, 10.0
WARMING_UP = 200


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


async def _listening(number: int) -> Sockets:
    async with client.server() as served:
        return await client.idle_sockets(served, number)
