"""Benchmarks of an embedded queue."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import uvloop

from fairlane.bench import measure, memory
from fairlane.bench.measure import CALLERS, LANES, Figure, embedded_queue, repeat

LIMITED = 1_000


def figures(runs: int, jobs: int, *, short: bool) -> Iterator[Figure]:
    queue = embedded_queue
    for n in (100, 1000):
        values = repeat(runs, partial(measure.batch_submits, queue, jobs, n))
        yield Figure("batch submits", f"n = {n}, {CALLERS} callers", "jobs/s", values)
    few = max(200, jobs // 50)
    for callers, number in ((1, few), (50, jobs // 4)):
        values = repeat(runs, partial(measure.single_submits, queue, number, callers))
        yield Figure("single submits", f"n = 1, {callers} callers", "jobs/s", values)
    for limit in (0, LIMITED):
        for n, number in ((1, few), (10, jobs // 2), (100, jobs)):
            values = repeat(runs, partial(measure.drained, queue, number, n, limit))
            pool = f"pool of {limit}" if limit else "no limited pool"
            yield Figure("drained", f"n = {n}, {LANES} lanes, {pool}", "jobs/s", values)
    found = [uvloop.run(measure.latencies(queue, few)) for _ in range(runs)]
    yield Figure("submit → start", "n = 1, idle worker, p50", "ms", [p50 for p50, _ in found])
    yield Figure("submit → start", "n = 1, idle worker, p99", "ms", [p99 for _, p99 in found])
    for n in (1, 10, 100):
        for waiting in (1_000, 100_000) if short else (1_000, 100_000, 1_000_000):
            rounds = max(5, min(2_000, waiting // 2) // n)
            values = repeat(runs, partial(measure.memory_claim_cost, waiting, n, rounds))
            yield Figure("claim cost", f"n = {n}, {waiting:,} waiting", "µs/job", values)
    taken = [memory.taken() for _ in range(runs)]
    yield Figure("memory", "empty queue", "MB", [empty for empty, _ in taken])
    users = f"{memory.USERS} users"
    yield Figure("memory a waiting job", users, "bytes", [job for _, job in taken])
