"""`fairlane bench --http`: the API's figures, with the settings they were taken under."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairlane.cli import measure_http
from fairlane.cli.measure import Figure

BATCH, SOCKETS, SECONDS = 500, 1_000, 10.0


async def figures(runs: int, jobs: int, *, short: bool) -> AsyncIterator[Figure]:
    connections = measure_http.CONNECTIONS
    singles: list[measure_http.Speed] = []
    batches: list[float] = []
    for _ in range(runs):
        async with measure_http.server() as served:
            await measure_http.single_submits(served.port, 200)
            singles.append(await measure_http.single_submits(served.port, jobs))
            batches.append(await measure_http.batch_submits(served.port, 4 * jobs, BATCH))
    at_once = f"n = 1, {connections} connections"
    yield Figure("single submits", at_once, "jobs/s", [each.rate for each in singles])
    yield Figure("single submits", f"{at_once}, p99", "ms", [each.p99 for each in singles])
    yield Figure("batch submits", f"n = {BATCH}, 4 connections", "jobs/s", batches)
    half = sorted(each.rate for each in singles)[len(singles) // 2] / 2
    paced: list[measure_http.Speed] = []
    for _ in range(runs):
        async with measure_http.server() as served:
            await measure_http.single_submits(served.port, 200)
            seconds = 2 if short else SECONDS
            paced.append(await measure_http.paced_submits(served.port, half, seconds))
    pace = f"{half:,.0f} jobs/s, half load"
    yield Figure("submit", f"{pace}, p50", "ms", [each.p50 for each in paced])
    yield Figure("submit", f"{pace}, p99", "ms", [each.p99 for each in paced])
    number = 100 if short else SOCKETS
    listening: list[measure_http.Sockets] = []
    for _ in range(runs):
        async with measure_http.server() as served:
            listening.append(await measure_http.idle_sockets(served, number))
    what = f"{number:,} idle WebSockets"
    yield Figure("server memory", what, "MB", [each.after for each in listening])
    grown = [each.after - each.before for each in listening]
    yield Figure("server memory", f"{what}, more than without", "MB", grown)
