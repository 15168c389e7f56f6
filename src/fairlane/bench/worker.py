"""A worker process of the benchmark: drains until it is stopped. Each job is an asyncio task that
records its start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import uvloop

from fairlane.bench.measure import catalog
from fairlane.compose import cluster
from fairlane.engine.settle import Done
from fairlane.model.lease import Lease
from fairlane.model.worker import Worker
from fairlane.tuning import steady

MARK = b"started\n"

LANES = 48
"""Concurrent claim loops in a process: their requests to index and ledger share batches."""


def lanes(limit: int, n: int) -> int:
    """No more claim loops than have work when each has claimed n jobs."""
    return max(1, min(LANES, limit // n)) if limit else LANES


async def main(hits: str, database: str, redis: str, prefix: str, limit: str, n: str) -> None:
    file = os.open(hits, os.O_WRONLY | os.O_APPEND)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def work(lease: Lease) -> Done:
        os.write(file, MARK)
        return Done(lease, {"length": len(lease.input["text"])})

    async def lane(number: int) -> None:
        worker = Worker(f"worker-{os.getpid()}-{number}")
        while not stop.is_set():
            leases = await engine.claim(worker, int(n), wait=0.2)
            tasks = [asyncio.create_task(work(lease)) for lease in leases]
            await engine.settle([await task for task in tasks])

    async with await cluster(catalog(int(limit)), database, redis, prefix=prefix) as engine:
        await asyncio.gather(*(lane(number) for number in range(lanes(int(limit), int(n)))))


if __name__ == "__main__":
    steady()
    uvloop.run(main(*sys.argv[1:]))
