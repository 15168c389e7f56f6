"""The comparison benchmark with pgqueuer, if it is installed: same payload and same job body."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import asyncpg
import orjson
import uvloop

from fairlane.bench.measure import PAYLOAD
from fairlane.bench.worker import MARK

SUBMIT_BATCH = 1_000


async def fill(database: str, jobs: int, n: int = SUBMIT_BATCH, callers: int = 1) -> float:
    """Seconds to submit the jobs, n at a time, by so many callers with one connection each."""
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import Queries

    connections = [await asyncpg.connect(database) for _ in range(callers)]
    try:
        queues = [Queries(AsyncpgDriver(connection)) for connection in connections]
        await queues[0].install()
        body = orjson.dumps(PAYLOAD)
        sizes = iter([min(n, jobs - start) for start in range(0, jobs, n)])

        async def caller(queue: Queries) -> None:
            for size in sizes:
                await queue.enqueue(["noop"] * size, [body] * size, [0] * size)

        begin = time.perf_counter()
        await asyncio.gather(*map(caller, queues))
        return time.perf_counter() - begin
    finally:
        for connection in connections:
            await connection.close()


async def main(hits: str, database: str, batch: str) -> None:
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver

    file = os.open(hits, os.O_WRONLY | os.O_APPEND)
    connection = await asyncpg.connect(database)
    queue = PgQueuer(AsyncpgDriver(connection))

    async def noop(job: Any) -> None:
        len(orjson.loads(job.payload)["text"])
        os.write(file, MARK)

    queue.entrypoint("noop")(noop)
    await queue.qm.run(batch_size=int(batch))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
