"""A listener process of the benchmark: reads job ids from standard input, follows each job, and
writes each state that it sees with the time."""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

from fairlane.bench.measure import catalog
from fairlane.compose import cluster


async def main(database: str, redis: str, prefix: str) -> None:
    loop, orders = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async with await cluster(catalog(), database, redis, prefix=prefix) as engine:
        while line := await orders.readline():
            async for job in engine.follow(line.decode().strip()):
                if job is not None:
                    sys.stdout.write(f"{job.state} {time.monotonic()}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
