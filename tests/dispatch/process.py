"""Dispatchers in a process of their own, to be stopped and killed.

Reads one line of JSON: the database, Redis, prefix, endpoints, how many dispatchers, their lease
and the longest call. Says "ready" when they claim, and ends with its input."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fairlane.compose import cluster
from fairlane.dispatch import Dispatcher
from fairlane.model.catalog import Catalog
from fairlane.model.endpoint import Endpoint
from fairlane.model.service import Executor, Fairness, Overrun, Service
from fairlane.model.tier import Tier, Tiers

LIMITS = {"one": 1, "four": 4, "loose": 1}


def settings(timeout: float) -> Catalog:
    services = [
        Service(
            name,
            executor=Executor.HTTP,
            limit=limit,
            timeout=timeout,
            max_attempts=100,
            backoff=(0.1,),
            fairness=Fairness.NONE,
            overrun=Overrun.FAST if name == "loose" else Overrun.STRICT,
        )
        for name, limit in LIMITS.items()
    ]
    return Catalog(Tiers([Tier("only")]), services)


class DispatcherProcess:
    """As the test sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def name(self) -> str:
        """What the names of its dispatchers begin with."""
        return f"process-{self._process.pid}-"

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        return await self._process.wait()


@asynccontextmanager
async def dispatching(**where: Any) -> AsyncIterator[DispatcherProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.dispatch.process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(where).encode() + b"\n")
        assert await process.stdout.readline() == b"ready\n"
        yield DispatcherProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        process.stdin.close()
        await process.wait()


async def main() -> None:
    where = json.loads(sys.stdin.readline())
    endpoints = {name: Endpoint(url) for name, url in where["endpoints"].items()}
    engine = await cluster(
        settings(where["timeout"]),
        where["database"],
        where["redis"],
        prefix=where["prefix"],
        unsafe=True,
    )
    async with engine, AsyncExitStack() as stack:
        for n in range(where["callers"]):
            name = f"process-{os.getpid()}-{n}"
            await stack.enter_async_context(
                Dispatcher(engine, endpoints, name=name, lease=where["lease"])
            )
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
